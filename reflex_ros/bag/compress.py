"""Raw images as compressed ones, away from who records them, so that recording stays cheap."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from reflex_ros.bag import values
from reflex_ros.bag.schema import Schema, find_schema, typestore_of
from reflex_ros.core.errors import LayoutError

FORMATS = ('png', 'jpeg')
RAW = 'sensor_msgs/msg/Image'
COMPRESSED = 'sensor_msgs/msg/CompressedImage'
JPEG_QUALITY = 95
PNG_LEVEL = 1


class Squeezer:
    """Makes the stored form of an arrived image; what cannot be compressed is stored as it came.

    Args:
        compressor: Compresses, or raises anything.
        raw: Topic for images as they came, by the topic of the compressed ones.

    Attributes:
        odd: What was not compressed, in words: the newest reason by raw topic.
    """

    def __init__(self, compressor: ImageCompressor, raw: Mapping[str, str]) -> None:
        self._compressor = compressor
        self.raw = dict(raw)
        self.odd: dict[str, str] = {}

    def __call__(self, topic: str, data: bytes) -> tuple[str, bytes]:
        """Return topic and bytes to store of a message that arrived for ``topic``."""
        raw = self.raw.get(topic)
        if raw is None:
            return topic, data
        try:
            return topic, self._compressor(data)
        except Exception as error:  # PIL and damaged bytes raise anything; no image is worth more
            self.odd[raw] = ' '.join(str(error).split()) or type(error).__name__
            return raw, data


class ImageCompressor:
    """Turns serialized ``Image`` into serialized ``CompressedImage``.

    PNG loses nothing, so that a replay sees what the policy saw; JPEG is smaller.

    Args:
        kind: ``png`` or ``jpeg``.
    """

    def __init__(self, kind: str) -> None:
        self.schema: Schema = find_schema(COMPRESSED)
        self._kind = kind
        raw = find_schema(RAW)
        self._store = typestore_of([(raw.type, raw.text), (self.schema.type, self.schema.text)])

    def __call__(self, data: bytes) -> bytes:
        """Return the compressed message.

        Raises:
            LayoutError: The image has an encoding that is not compressed here.
        """
        from PIL import Image

        msg = self._store.deserialize_cdr(data, RAW)
        pixels = values.image(msg)
        if pixels is None:
            raise LayoutError(
                f'image cannot be compressed: got {msg.encoding} of {msg.width} x {msg.height}, '
                'expected rgb8, bgr8 or mono8 with whole rows. Set recorder.compression to none.'
            )
        out = io.BytesIO()
        options = ({'quality': JPEG_QUALITY} if self._kind == 'jpeg'
                   else {'compress_level': PNG_LEVEL})
        Image.fromarray(pixels).save(out, self._kind.upper(), **options)
        kind = self._store.types[COMPRESSED]
        packed = np.frombuffer(out.getvalue(), np.uint8)
        message = kind(header=msg.header, format=f'{msg.encoding}; {self._kind} compressed',
                       data=packed)
        return bytes(self._store.serialize_cdr(message, COMPRESSED))
