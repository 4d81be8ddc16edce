"""The content security policy of a built page: what its browser may load and run."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

DIRECTIVES = {
    "default-src": "'none'",  # frames, workers, plug-ins, media, and every request by a script
    "script-src": "'self' {hashes}",  # files of the book, and the theme's own lines by their hashes; no eval
    "style-src": "'self' 'unsafe-inline'",  # SECURITY.md says why
    "img-src": "'self' data:",
    "font-src": "'self'",
    "form-action": "'self'",  # the search box
    "base-uri": "'none'",
}
CHARSET = '<meta charset="utf-8" />'
SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script>", re.DOTALL)
PRESSES = {'onclick="window.print()"': 'data-press="print"', 'onclick="toggleFullScreen()"': 'data-press="fullscreen"'}


def protect(pages: Path) -> None:
    """Write the policy into every page of a folder, and name the theme's buttons for `buttons.js` to serve."""
    for path in sorted(pages.rglob("*.html")):
        page = path.read_text(encoding="utf-8")
        if CHARSET in page:
            path.write_text(protected(page, whole=path.name == "search.html"), encoding="utf-8")


def protected(page: str, *, whole: bool = False) -> str:
    """Return a page with its policy, which allows the inline scripts of its head, or of the `whole` page, by hash.

    Chapters and what they print stand in the body of a page: a script that they smuggle in has no hash. Only the page
    of the search has scripts of the theme in its body, and no text of a chapter.

    Examples
    --------
    >>> page = protected(f"<head>{CHARSET}<script>one()</script></head><body><script>two()</script></body>")
    >>> page.count("sha256-"), "script-src 'self' 'sha256-" in page, page.endswith("</body>")
    (1, True, True)
    """
    for handler, named in PRESSES.items():
        page = page.replace(handler, named)
    theme = page if whole else page.partition("</head>")[0]
    inline = [match["body"] for match in SCRIPT.finditer(theme) if "src=" not in match["attributes"]]
    hashes = " ".join(sorted(set(map(source_hash, inline))))
    policy = "; ".join(f"{name} {value}".format(hashes=hashes).strip() for name, value in DIRECTIVES.items())
    return page.replace(CHARSET, f'{CHARSET}\n    <meta http-equiv="Content-Security-Policy" content="{policy}" />', 1)


def source_hash(script: str) -> str:
    """Return the source expression that allows one inline script.

    Examples
    --------
    >>> source_hash("doSomething();")
    "'sha256-RFWPLDbv2BY+rCkDzsE+0fr8ylGr2R2faWMhq4lfEQc='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
