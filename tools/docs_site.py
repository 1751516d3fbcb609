"""Builds the docs as a site: `python tools/docs_site.py` writes it to build/site; open index.html there.

The pages of docs/ are written to be read on GitHub as they are. For the site they are copied, parts of other files are
put in where a page asks for them (`<!-- include: README.md#heading -->` up to `<!-- end of include -->`), each rule
gets a page of its own in place of the two long lists, and links follow. Zensical then builds it and fails on links and
anchors that lead nowhere. Nothing is fetched, neither while building nor by the pages.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from docs_pages import STAGES, rule_page, rules_index

from underfed.report.rulebook import entries

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = "src/underfed/schema/diagnosis.schema.json"
#: Files outside docs/ that are pages of the site, and where.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
#: Pages that the site has in another form.
REPLACED = {"rules.md", "audit-rules.md"}
#: Where the parts of the README are on the site.
README = {
    "what-you-get": "card.md",
    "what-watching-costs": "overhead.md",
    "four-causes-four-cures": "index.md",
    "set-up": "quickstart.md",
}
NAV: list[tuple[str, list[str]]] = [
    ("Start", ["index.md", "quickstart.md", "card.md", "faq.md"]),
    ("Commands", ["run.md", "try.md", "tune.md", "compare.md", "attach.md", "read.md", "report.md", "audit.md"]),
    ("Beside it", ["box.md", "carry.md", "stale.md", "library.md"]),
    ("Is it true?", ["measures.md", "accuracy.md", "overhead.md", "comparison.md", "figures.md", "numbers.md"]),
    ("Reference", ["json.md", "changes.md", "contributing.md"]),
]
#: Anchors as GitHub makes them, two hyphens in a row included; safe YAML cannot name a function.
_SLUGS = "as-github"
_AS_GITHUB = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_INCLUDE = re.compile(r"<!-- include: (\S+?)#(\S+) -->\n.*?<!-- end of include -->\n", re.S)
_SHIM = re.compile(r'<script src="https://unpkg\.com/iframe-worker/shim"[^>]*></script>')


def assemble(target: Path, docs: Path = ROOT / "docs") -> None:
    """Write the sources of the site: target/pages and target/mkdocs.yml."""
    pages = target / "pages"
    shutil.rmtree(target, ignore_errors=True)
    (pages / "rules").mkdir(parents=True)
    for page in sorted(docs.glob("*.md")):
        if page.name not in REPLACED:
            (pages / page.name).write_text(_for_site(page.read_text(encoding="utf-8"), "docs"), encoding="utf-8")
    for name, place in PAGES.items():
        (pages / place).write_text(_for_site((ROOT / name).read_text(encoding="utf-8"), ""), encoding="utf-8")
    figures = (docs / "figures.md").read_text(encoding="utf-8")
    for entry in entries():
        (pages / f"rules/{entry.id}.md").write_text(rule_page(entry, figures), encoding="utf-8")
    (pages / "rules/index.md").write_text(rules_index(), encoding="utf-8")
    shutil.copy(ROOT / SCHEMA, pages)
    shutil.copy(ROOT / "tools/docs_search.js", pages)
    settings = yaml.safe_dump(_settings(pages), sort_keys=False).replace(f"slugify: {_SLUGS}", f"slugify: {_AS_GITHUB}")
    (target / "mkdocs.yml").write_text(settings, encoding="utf-8")


def _settings(pages: Path) -> dict[str, Any]:
    """Return the site's settings, in the form of mkdocs that Zensical reads."""
    palette = [("light", "default", "lucide/sun"), ("dark", "slate", "lucide/moon")]
    return {
        "site_name": "underfed",
        "site_description": "Names what keeps a PyTorch training run from going faster, and what fixing it is worth.",
        "docs_dir": "pages",
        "site_dir": "site",
        "use_directory_urls": False,
        "theme": {
            "name": "material",
            "font": False,
            "palette": [
                {"media": f"(prefers-color-scheme: {name})", "scheme": scheme, "toggle": {"icon": icon, "name": name}}
                for name, scheme, icon in palette
            ],
            "features": ["navigation.sections", "navigation.top", "navigation.indexes", "content.code.copy"],
        },
        "extra": {"generator": False},
        "plugins": ["search", "offline"],
        "markdown_extensions": ["tables", "fenced_code", {"toc": {"permalink": True, "slugify": _SLUGS}}],
        "validation": {"invalid_links": True, "invalid_link_anchors": True},
        "nav": _nav(pages),
    }


def _nav(pages: Path) -> list[dict[str, Any]]:
    """Return the navigation; pages that no list names come under Beside it, so that none is lost."""
    listed = {name for _, names in NAV for name in names}
    others = sorted(page.name for page in pages.glob("*.md") if page.name not in listed)
    nav: list[dict[str, Any]] = []
    for title, names in NAV:
        there = [name for name in names if (pages / name).exists()]
        if title == "Beside it":
            there += others
        if title in {"Commands", "Beside it"}:
            nav.append({title: [{name.removesuffix(".md"): name} for name in there]})
        else:
            nav.append({title: there})
    rules: list[Any] = ["rules/index.md"]
    for stage, words in STAGES.items():
        rules.append({words: [f"rules/{entry.id}.md" for entry in entries() if entry.stage == stage]})
    return [*nav[:3], {"Rules": rules}, *nav[3:]]


def _for_site(text: str, folder: str) -> str:
    """Put included parts in, and turn links of a file in `folder` of the repository into links of the site's root."""
    return _links(_included(text), folder)


def _included(text: str) -> str:
    def put(found: re.Match[str]) -> str:
        name, heading = found.groups()
        return _links(section((ROOT / name).read_text(encoding="utf-8"), heading), posixpath.dirname(name))

    return _INCLUDE.sub(put, text)


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, given as its anchor, up to the next heading of its level or above."""
    inside, level, lines, fenced = False, 0, [], False
    for line in text.splitlines(keepends=True):
        fenced ^= line.startswith("```")
        marks = re.match(r"(#+) (.*)", line) if not fenced else None
        if inside and marks and len(marks.group(1)) <= level:
            break
        if inside:
            lines.append(line)
        elif marks and anchor(marks.group(2)) == heading:
            inside, level = True, len(marks.group(1))
    if not inside:
        raise SystemExit(f"docs_site: no heading #{heading}")
    return "".join(lines).strip("\n") + "\n"


def anchor(title: str) -> str:
    """Return a heading's anchor, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def _links(text: str, folder: str) -> str:
    return _LINK.sub(lambda found: f"[{found.group(1)}]({_place(found.group(2), folder)})", text)


def _place(link: str, folder: str) -> str:
    """Return where a link of the repository leads on the site; both are relative to their root."""
    if "://" in link or link.startswith(("#", "mailto:")):
        return link
    path, _, fragment = link.partition("#")
    full = posixpath.normpath(posixpath.join(folder, path))
    name = full.removeprefix("docs/")
    if name in REPLACED:
        rule = fragment.partition("-")[0].upper()
        return f"rules/{rule}.md" if rule else "rules/index.md"
    if full == SCHEMA:
        return Path(SCHEMA).name
    if full == "README.md":
        return README.get(fragment, "index.md")
    return PAGES.get(full, name) + (f"#{fragment}" if fragment else "")


def build(target: Path) -> int:
    """Build target/site from what `assemble` wrote; return Zensical's exit code, 1 where a link leads nowhere."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", "mkdocs.yml"]
    done = subprocess.run(command, cwd=target, check=False)
    for page in (target / "site").rglob("*.html"):
        up = "../" * (len(page.relative_to(target / "site").parts) - 1)
        own = f'<script src="{up}docs_search.js"></script>'
        page.write_text(_SHIM.sub(own, page.read_text(encoding="utf-8")), encoding="utf-8")
    return done.returncode


def main() -> int:
    """Build the site; return 0, or 1 where it is not whole."""
    parser = argparse.ArgumentParser(description="Build the docs as a site.")
    parser.add_argument("--out", type=Path, default=ROOT / "build/docs", help="folder for sources and site")
    target = parser.parse_args().out.resolve()
    assemble(target)
    code = build(target)
    sys.stdout.write(f"{target / 'site/index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
