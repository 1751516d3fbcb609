"""Every sample is tokenized, searched by regular expressions, or transformed heavily in Python when it is asked for.

Why it costs
    The work is done again in every epoch by worker processes; once they use all CPUs, more workers cannot help
    and the device waits.

Fix
    Do once what does not change (tokenize, resize, resample ahead and store arrays), compile patterns at import,
    and move heavy random transforms to the device in batches.

When it stays silent
    The usual crop, flip and normalize: they belong there. Decoding, colour changes and rotations often do as well
    (shown as possible).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.finding import Hit, least
from underfed.audit.module import Function
from underfed.audit.rule import AuditRule, Code

_HEAVY = re.compile(
    r"(^|\.)(ElasticTransform|RandomPerspective|ElasticDeformation|GridDistortion|OpticalDistortion|RandomElasticDeformation"
    r"|Rand3DElastic\w*|gaussian_filter|map_coordinates|GaussianFilter)$"
)
_AUDIO = (
    "librosa.feature.",
    "librosa.resample",
    "librosa.stft",
    "librosa.load",
    "scipy.signal.resample",
    "librosa.effects.",
)
_IMAGE = (
    "skimage.transform.",
    "scipy.ndimage.zoom",
    "scipy.ndimage.rotate",
    "scipy.ndimage.map_coordinates",
    "cv2.fastNlMeans",
)
_COSTLY = re.compile(
    r"(^|\.)(ColorJitter|RandAugment|AutoAugment|TrivialAugmentWide|AugMix|RandomAffine|RandomRotation)$"
)
_DECODES = frozenset(
    ["PIL.Image.open", "cv2.imread", "imageio.imread", "imageio.v2.imread", "imageio.v3.imread", "skimage.io.imread"]
) | frozenset(["matplotlib.image.imread", "matplotlib.pyplot.imread", "torchvision.io.read_image", "torchaudio.load"])
_TOKENIZER = re.compile(
    r"(^|[._])tokenizer$|(^|[._])tokenizer\.(encode|encode_plus|__call__|batch_encode_plus|tokenize)$|(^|[._])nlp$"
)


def check(code: Code) -> Iterator[Hit]:
    """Find heavy work in `__getitem__`, and heavy transforms in a composition."""
    for hot in code.sampled:
        if not isinstance(hot.node, ast.Call):
            continue
        name, text = code.module.called(hot.node), ast.unparse(hot.node.func)
        if _TOKENIZER.search(text) and hot.node.args:
            yield Hit(
                hot.node,
                f"{code.short(hot.node.func)}() runs for every sample of every epoch",
                least(hot.sure, "likely"),
            )
        elif name in {"re.compile", "regex.compile"}:
            yield Hit(hot.node, "a pattern is compiled (or looked up) for every sample", least(hot.sure, "likely"))
        elif name in {"re.sub", "re.findall", "re.split", "re.finditer", "regex.sub", "regex.findall"}:
            yield Hit(hot.node, f"{name} runs for every sample of every epoch", "possible")
        elif name.startswith((*_AUDIO, *_IMAGE)) or _HEAVY.search(name):
            yield Hit(
                hot.node, f"{code.short(hot.node.func)}() runs on a CPU for every sample", least(hot.sure, "likely")
            )
        elif name in _DECODES:
            yield Hit(hot.node, f"{name}() decodes an image for every sample of every epoch", "possible")
    yield from _collated(code)
    sampled = {hot.node for hot in code.sampled}
    for call in code.calls:
        name = code.module.called(call)
        if call in sampled or not _composed(code, call):
            continue
        if _HEAVY.search(name):
            text = f"{code.short(call.func)} is among the heaviest transforms and runs on a CPU for every sample"
            yield Hit(call, text, "likely")
        elif _COSTLY.search(name):
            yield Hit(call, f"{code.short(call.func)} takes milliseconds of a CPU for every sample", "possible")


def _collated(code: Code) -> Iterator[Hit]:
    """Find tokenizers in functions that put batches together."""
    for loader in code.loaders:
        collate = loader.given("collate_fn")
        found = code.project.find(code.module.qualified(collate) or "") if collate is not None else None
        if not isinstance(found, Function) or found.module is not code.module:
            continue
        for node in ast.walk(found.node):
            if isinstance(node, ast.Call) and node.args and _TOKENIZER.search(ast.unparse(node.func)):
                yield Hit(node, f"{code.short(node.func)}() runs again for every batch of every epoch", "possible")


def _composed(code: Code, call: ast.Call) -> bool:
    return any(
        isinstance(one, ast.Call) and code.method_name(one) in {"Compose", "Sequential"} for one in code.module.up(call)
    )


RULE = AuditRule(
    id="T8",
    name="transform-saturates-cpus",
    settle="`underfed run`: CPU use of the workers, and the share of the step that waits for them",
    doc=__doc__ or "",
    check=check,
)
