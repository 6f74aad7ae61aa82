// Examples: filters, order, and a large view of one example that keys can drive.
(() => {
  const STEP = 24;
  const cards = [...document.querySelectorAll(".zoomable")];
  const shown = () => cards.filter((card) => !card.closest("[hidden]"));

  const dialog = document.createElement("dialog");
  dialog.className = "zoom";
  const pictures = document.createElement("div");
  pictures.className = "pictures";
  const caption = document.createElement("p");
  caption.id = "zoom-caption";
  dialog.setAttribute("aria-labelledby", caption.id);
  const turns = document.createElement("p");
  turns.className = "tools";
  let current = null;

  const open = (card) => {
    current = card;
    const copies = [...card.querySelectorAll("img")].map((image) => {
      const figure = document.createElement("figure");
      const name = document.createElement("figcaption");
      name.textContent = image.nextElementSibling?.matches("span") ? words(image.nextElementSibling) : "";
      figure.append(image.cloneNode(), name);
      return figure;
    });
    pictures.replaceChildren(...copies);
    caption.replaceChildren(...card.querySelector(".words").cloneNode(true).childNodes);
    if (!dialog.open) dialog.showModal();
  };

  const turn = (by) => {
    const all = shown();
    open(all[(all.indexOf(current) + by + all.length) % all.length]);
  };

  turns.append(button("Previous", () => turn(-1)), button("Next", () => turn(1)), button("Close", () => dialog.close()));
  dialog.append(turns, caption, pictures);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => current.focus());
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") turn(-1);
    if (event.key === "ArrowRight") turn(1);
  });
  if (cards.length) document.body.append(dialog);

  for (const card of cards) {
    card.tabIndex = 0;
    card.setAttribute("role", "button");
    card.setAttribute("aria-label", `Enlarge: ${words(card.querySelector(".words"))}`);
    card.addEventListener("click", () => open(card));
    card.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      open(card);
    });
  }

  const filters = document.querySelector(".filters");
  if (!filters) return;
  const list = document.querySelector("ul.gallery");
  const [attack, label, result, order] = ["attack", "class", "result", "order"].map((name) => filters.querySelector(`[name=${name}]`));
  const count = filters.querySelector("output");
  let most = STEP;

  const number = (card, name) => Number(card.dataset[name]);
  const ORDERS = {
    worst: (a, b) => number(a, "worst") - number(b, "worst"),
    margin: (a, b) => number(a, "margin") - number(b, "margin"),
    class: (a, b) => number(a, "class") - number(b, "class") || number(a, "worst") - number(b, "worst"),
    image: (a, b) => number(a, "image") - number(b, "image"),
  };
  const alone = (card) => attack.value.startsWith("=") && card.dataset.attacks === attack.value.slice(1);
  const fits = (card) =>
    (!attack.value || alone(card) || card.dataset.attacks.split(" ").includes(attack.value)) &&
    (!label.value || card.dataset.class === label.value) &&
    (!result.value || card.dataset.result === result.value);

  const more = button("Show more", () => { most += STEP; apply(); });
  const all = button("Show all", () => { most = Infinity; apply(); });
  tools(list, more, all);

  const apply = () => {
    const items = [...list.children].sort(ORDERS[order.value]);
    const fitting = items.filter(fits);
    for (const item of items) item.hidden = true;
    for (const item of fitting.slice(0, most)) item.hidden = false;
    list.append(...items);
    count.textContent = `${Math.min(most, fitting.length)} of ${fitting.length} examples`;
    more.hidden = all.hidden = fitting.length <= most;
  };

  for (const select of [attack, label, result, order]) {
    select.addEventListener("change", () => { most = STEP; apply(); });
  }
  filters.hidden = false;
  apply();
})();
