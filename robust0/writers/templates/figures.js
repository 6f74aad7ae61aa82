// Figures: the values under the pointer, and a button that saves the figure as SVG.
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);

  const hide = (svg) => {
    svg.querySelector(".on")?.classList.remove("on");
    tip.hidden = true;
  };

  const show = (svg, part, x, y) => {
    hide(svg);
    part.classList.add("on");
    tip.textContent = part.getAttribute("aria-label");
    tip.hidden = false;
    const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(x + 14, right))}px`;
    tip.style.top = `${Math.max(8, y - tip.offsetHeight - 12)}px`;
  };

  const follow = (svg) => {
    // The titles are for pages without scripts; two tips at once would be one too many.
    const parts = [...svg.querySelectorAll("[data-tip]")];
    for (const part of parts) {
      const title = part.querySelector("title");
      part.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    if (!parts.length) return;
    const move = (event) => {
      const part = event.target.closest("[data-tip]");
      if (part) show(svg, part, event.clientX, event.clientY);
      else hide(svg);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", () => hide(svg));
    svg.addEventListener("blur", () => hide(svg));
    svg.tabIndex = 0;
    svg.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") hide(svg);
      if (!way) return;
      event.preventDefault();
      const at = parts.indexOf(svg.querySelector(".on")) + way;
      const part = parts[Math.max(0, Math.min(at, parts.length - 1))];
      const box = part.getBoundingClientRect();
      show(svg, part, box.x + box.width / 2, box.y + Math.min(box.height / 3, 80));
    });
  };

  // A copy that needs no style sheet: every colour and size becomes an attribute.
  const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"];
  const standalone = (svg) => {
    const copy = svg.cloneNode(true);
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.removeAttribute("tabindex");
    const originals = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, at) => {
      const style = getComputedStyle(originals[at]);
      if (["title", "desc"].includes(node.localName)) return;
      for (const name of KEPT) node.setAttribute(name, style.getPropertyValue(name));
      node.removeAttribute("class");
    });
    for (const part of copy.querySelectorAll("rect[data-tip]")) if (part.getAttribute("opacity") === "0") part.remove();
    const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const sheet = getComputedStyle(svg.closest("figure")).backgroundColor;
    for (const [name, value] of [["width", width], ["height", height], ["fill", sheet]]) paper.setAttribute(name, value);
    copy.prepend(paper);
    return new XMLSerializer().serializeToString(copy);
  };

  for (const figure of document.querySelectorAll("figure.sheet")) {
    const svg = figure.querySelector("svg.curve");
    const image = figure.querySelector("img");
    const name = fileName(figure, "figure.sheet", "svg");
    if (svg) follow(svg);
    const text = () => (svg ? standalone(svg) : new TextDecoder().decode(
      Uint8Array.from(atob(image.src.split(",")[1]), (letter) => letter.charCodeAt(0))));
    if (svg || image) tools(figure, button("Save as SVG", () => save(name, "image/svg+xml", text())));
  }
})();
