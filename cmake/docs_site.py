# cmake/docs_site.py -- mkdocs' hook: pages from outside docs/, and links from the site into the source tree.
#
# README.md, ARCHITECTURE.md and the like are pages too. A link to any other file of the tree leads to the repository if
# its address is known (VITUNE_REPOSITORY, or GitHub's variables in CI), else its words stay and the link goes.
# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

# Code is matched first where it begins first, so that a link inside it is none.
LINK = re.compile(r"^```.*?^```[ \t]*$|`[^`\n]*`|(!?)\[([^\]\n]*(?:\n[^\]\n]+)?)\]\(([^)\s]+)\)", re.M | re.S)
FOREIGN = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//|#)")


def root_of(config):
    return pathlib.Path(config["config_file_path"]).resolve().parent


def repository():
    """Where a file of the source tree can be read, or None."""
    named = os.environ.get("VITUNE_REPOSITORY")
    if not named and os.environ.get("GITHUB_REPOSITORY"):
        named = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{os.environ['GITHUB_REPOSITORY']}"
    return f"{named.rstrip('/')}/blob/{os.environ.get('GITHUB_SHA', 'main')}" if named else None


def pages_at_root(config):
    """The pages of the list that docs/ does not have and the root has."""
    listed = re.findall(r"[\w./-]+\.md", str(config["nav"]))
    docs = pathlib.Path(config["docs_dir"])
    return [name for name in listed if not (docs / name).exists() and (root_of(config) / name).exists()]


def on_files(files, config):
    for name in pages_at_root(config):
        files.append(File(name, str(root_of(config)), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown, page, config, files):
    root = root_of(config)
    pages = {posixpath.relpath(file.abs_src_path, root): file.src_uri for file in files}
    own = posixpath.relpath(page.file.abs_src_path, root)

    def target_of(link):
        """The link as the site needs it, or None for one that it cannot have."""
        path, mark, anchor = link.partition("#")
        tree_path = posixpath.normpath(posixpath.join(posixpath.dirname(own), path))
        if tree_path in pages:
            return posixpath.relpath(pages[tree_path], posixpath.dirname(page.file.src_uri) or ".") + mark + anchor
        return f"{repository()}/{tree_path}" if repository() and (root / tree_path).exists() else None

    def replaced(match):
        image, words, link = match.groups()
        if link is None or FOREIGN.match(link):
            return match.group(0)
        target = target_of(link)
        return words if target is None else f"{image}[{words}]({target})"

    return LINK.sub(replaced, markdown)
