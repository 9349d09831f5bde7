"""Uploads to the Hub through its own client; the token comes from HF_TOKEN in the environment only."""

from __future__ import annotations

import os
from pathlib import Path

from taps.data.downloads import check_repository, without_token
from taps.plumbing.errors import TapsError


def check_upload(repo: str) -> None:
    """Checks what can be known of an upload before there is anything to upload.

    Raises:
        TapsError: not owner/name, or no token.
    """
    check_repository(repo, flag="--push-to-hub")
    if not os.environ.get("HF_TOKEN"):
        remedy = "put a token that may write into HF_TOKEN"
        raise TapsError(f"--push-to-hub {repo}", "no token in the environment", remedy=remedy)


def upload_folder(folder: Path, repo: str, *, public: bool, replace: bool) -> str:
    """Returns the address of the commit that holds a folder's files as a model repository.

    Args:
        folder: What to upload.
        repo: owner/name; made if it is not there.
        public: Whether a repository that is made can be read by everybody.
        replace: Whether one that is there may be written to. Files of other names stay in it.

    Raises:
        TapsError: as `check_upload`; it is there and may not be written to, or the Hub refused.
        OSError: the network failed.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    check_upload(repo)
    api, where = HfApi(token=os.environ["HF_TOKEN"]), f"--push-to-hub {repo}"
    try:
        if api.repo_exists(repo):
            if not replace:
                raise TapsError(where, "there already", remedy="give another name, or --force to write to it")
        else:
            api.create_repo(repo, private=not public)
        done = api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload a draft model")
    except HTTPError as error:
        remedy = "see whether the token may write there"
        raise TapsError(where, "the Hub refused", found=without_token(str(error)), remedy=remedy) from None
    return str(done.commit_url)
