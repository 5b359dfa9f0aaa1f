"""The boundary certificate of a checkpoint, checked against what was loaded.

``reflex-ros verify CHECKPOINT --json FILE`` writes it; blocks carry its hash, so that a recording
says under which proof its keys and values were reused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reflex_ros.core.errors import ConfigError
from reflex_ros.core.yaml_text import parse_json


def certificate_hash(named: str, *, model_id: str, dtype: str) -> str:
    """Return the hash of a certificate, '' where none is named.

    Args:
        named: File of ``reflex-ros verify --json``, or ''.
        model_id: Of the loaded checkpoint.
        dtype: Type that it computes in.

    Raises:
        ConfigError: The file cannot be read, is of another checkpoint or type, or says that the
            checkpoint may not be streamed.
    """
    if not named:
        return ''
    file = Path(named).expanduser()
    content = _read(file)
    if refusals := content.get('refusals'):
        raise ConfigError(
            f'policy.certificate {file}: got a refusal ({refusals[0]}), expected a checkpoint '
            'that may be streamed. Use another one.'
        )
    for name, expected in (('model_id', model_id), ('dtype', dtype)):
        if content.get(name) != expected:
            raise ConfigError(
                f'policy.certificate {file} {name}: got {content.get(name)!r}, expected '
                f'{expected!r} of the loaded checkpoint. Run reflex-ros verify on it again.'
            )
    return str(content['certificate_hash'])


def _read(file: Path) -> dict[str, Any]:
    try:
        content = parse_json(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f'policy.certificate {file}: got {error}, expected a file of '
            'reflex-ros verify --json. Correct the path.'
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get('certificate_hash'), str):
        raise ConfigError(
            f'policy.certificate {file}: got no certificate_hash, expected a file of '
            'reflex-ros verify --json. Run it again.'
        )
    return content
