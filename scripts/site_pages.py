"""What the documentation site has beside the pages of docs/; mkdocs.yml loads this as a hook.

Files elsewhere in the repository become pages, notebooks too, and so does every command's help. A
link from one of them to another leads to its page; a link to a file that is no page becomes the
file's path. What leads nowhere stays, and ends the strict build.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs/"
PAGES = {
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "protocols/README.md": "protocols.md",
    "protocols/aggregate/README.md": "aggregate.md",
}
"""Path in the repository -> page of the site."""
COMMANDS = "commands.md"
MORE = "More"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:#]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Pages that no section of the navigation names come last."""
    named = set(re.findall(r"[\w./-]+\.md", json.dumps(config.nav)))
    docs = Path(config.docs_dir)
    found = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    if left := sorted(found - named):
        config.nav.append({MORE: left})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made."""
    from mkdocs.structure.files import File

    def add(page: str, text: str) -> None:
        files.append(File.generated(config, page, content=text))

    for source, page in PAGES.items():
        add(page, (ROOT / source).read_text(encoding="utf-8"))
    docs = Path(config.docs_dir)
    for path in sorted(docs.rglob("*.ipynb")):
        page = path.relative_to(docs).with_suffix(".md").as_posix()
        add(page, notebook_page(json.loads(path.read_text(encoding="utf-8")), path.name))
    add(COMMANDS, commands_page())
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links as they are on the site."""
    uri = page.file.src_uri
    source = {made: path for path, made in PAGES.items()}.get(uri, DOCS + uri)
    return with_links(markdown, source, uri)


def with_links(markdown: str, source: str, page: str) -> str:
    """The text of a page with its links changed; source: its path in the repository."""

    def changed(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        to = path.removeprefix(DOCS) if path.startswith(DOCS) else PAGES.get(path)
        if to is None:
            return f"{words} (`{path}`)" if (ROOT / path).exists() else found[0]
        if to.endswith(".ipynb") and path != f"{source.removesuffix('.md')}.ipynb":
            to = f"{to.removesuffix('.ipynb')}.md"  # its page, which itself links to the file
        relative = os.path.relpath(to, PurePosixPath(page).parent)
        return f"[{words}]({relative}{anchor})"

    return _LINK.sub(changed, markdown)


# -- notebooks ------------------------------------------------------------------------------------


def notebook_page(notebook: dict[str, Any], name: str) -> str:
    """Markdown of a notebook: texts, code and what it printed."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [_output(each) for each in cell["outputs"]]
    parts.insert(1, f"[Download the notebook]({name})" + "{ .md-button }")
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    """One output: a picture, a table or a text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if svg := "".join(data.get("image/svg+xml", "")):
        drawn = base64.b64encode(svg.encode()).decode()
        return f'<img class="output" alt="Output" src="data:image/svg+xml;base64,{drawn}">'
    if html := "".join(data.get("text/html", "")):
        return f'<div class="output">{html}</div>'
    return f'<pre class="output">{escape("".join(data["text/plain"]).rstrip())}</pre>'


# -- commands -------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its options, as `--help` shows them."""
    from typer.main import get_command

    from ciphercohort.cli.app import app

    return "# Commands\n\n" + "\n\n".join(_command(get_command(app), ("cohort",)))


def _command(command: Any, names: tuple[str, ...]) -> list[str]:
    """The parts of a command's section, and those of its own commands."""
    if getattr(command, "hidden", False):
        return []
    inner = getattr(command, "commands", {})
    parts = [] if len(names) == 1 else [f"{'#' * len(names)} `{shlex.join(names)}`"]
    parts.append(" ".join((command.help or "").split("\f")[0].split()))
    rows = [row for each in command.params if (row := _option(each))]
    if rows and not inner:
        parts.append("| option | what |\n|---|---|\n" + "\n".join(rows))
    if command.epilog and not inner:
        example = re.sub(r"^Examples?:\s*|\n(?=\n)", "", command.epilog)
        parts.append(f"Example:\n\n```\n{example}\n```")
    for name, each in inner.items():
        parts += _command(each, (*names, name))
    return [part for part in parts if part]


def _option(param: Any) -> str:
    """A row of the table; nothing for what is hidden."""
    if getattr(param, "hidden", False) or param.name in ("install_completion", "show_completion"):
        return ""
    is_argument = param.param_type_name == "argument"
    names = [param.human_readable_name] if is_argument else [*param.opts, *param.secondary_opts]
    words = " ".join((getattr(param, "help", "") or "").split()).replace("|", "\\|")
    return f"| {', '.join(f'`{name}`' for name in names)} | {escape(words, quote=False)} |"
