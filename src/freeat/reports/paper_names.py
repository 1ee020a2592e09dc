"""What the paper calls data sets, norms, algorithms and columns."""

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet", "svhn": "SVHN"}
NORMS = {"l2": "L2", "linf": "Linf"}
LABELS = {
    "erm": "ERM",
    "fast": "Fast",
    "fast-7/255": "Fast (7/255)",
    "fast-10/255": "Fast (10/255)",
    "friendly-10": "Friendly (ε)",
    "friendly-10-2eps": "Friendly (2ε)",
    "trades-10": "TRADES",
    "free-trades-4": "Free-TRADES",
}
NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "wrn34": "Wide-ResNet-34"}
COLUMNS = {
    "clean_train": "Clean Train Acc.",
    "clean_test": "Clean Test Acc.",
    "clean_gap": "Clean Gen. Gap",
    "robust_train": "Robust Train Acc.",
    "robust_test": "Robust Test Acc.",
    "robust_gap": "Robust Gen. Gap",
}


def data_name(data: str) -> str:
    return DATA.get(data, data)


def norm_name(norm: str) -> str:
    return NORMS.get(norm, norm)


def label_name(label: str) -> str:
    """An algorithm as the paper writes it; ``vanilla-10`` is Vanilla-10."""
    return LABELS.get(label, label[:1].upper() + label[1:])


def panel_name(data: str, norm: str, panel: str) -> str:
    """The title of a figure's panel."""
    if panel.startswith("from "):
        panel = f"perturbations from {label_name(panel.removeprefix('from '))}"
    elif panel:
        panel = f"target {NETWORKS.get(panel, panel)}"
    return ", ".join(word for word in (data_name(data), norm_name(norm), panel) if word)
