"""Class names of the named datasets, by label."""

CIFAR10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup",
    "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house",
    "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man",
    "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy",
    "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal",
    "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar",
    "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman",
    "worm",
)  # fmt: skip

GTSRB = (
    "speed limit 20", "speed limit 30", "speed limit 50", "speed limit 60", "speed limit 70",
    "speed limit 80", "end of speed limit 80", "speed limit 100", "speed limit 120", "no passing",
    "no passing for heavy vehicles", "right of way at next crossing", "priority road", "yield",
    "stop", "no vehicles", "no heavy vehicles", "no entry", "danger", "bend to the left",
    "bend to the right", "double bend", "bumpy road", "slippery road", "road narrows on the right",
    "road works", "traffic signals", "pedestrians", "children", "bicycles", "ice or snow",
    "wild animals", "end of all limits", "turn right ahead", "turn left ahead", "ahead only",
    "ahead or right", "ahead or left", "keep right", "keep left", "roundabout",
    "end of no passing", "end of no passing for heavy vehicles",
)  # fmt: skip
