"""The tokenizer is found in the folder, fits the network, and pads nothing."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from reflex_ros.core.errors import ModelError
from reflex_ros.infer.processing.tokenizer import FILE, PromptTokenizer


@pytest.fixture(name='file')
def file_fixture(parity):
    return parity / 'pi0' / 'checkpoint' / 'tokenizer' / FILE


def edited(source, target, edit):
    content = json.loads(source.read_text())
    edit(content)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content))


@pytest.mark.parametrize('place', ['tokenizer', '.', 'elsewhere'])
def test_places_are_searched_in_order(tmp_path, file, place):
    folder, other = tmp_path / 'checkpoint', tmp_path / 'elsewhere'
    folder.mkdir()
    homes = {'tokenizer': folder / 'tokenizer', '.': folder, 'elsewhere': other}
    order = list(homes)
    for name in order[order.index(place):]:
        homes[name].mkdir(exist_ok=True)
        shutil.copy(file, homes[name])
    found = PromptTokenizer.load(folder, 8, also=(other,))
    assert found.file == homes[place] / FILE


def test_no_tokenizer_is_refused_with_the_places(tmp_path):
    with pytest.raises(ModelError, match=r'got no tokenizer in .*tokenizer, .*expected tokenizer'):
        PromptTokenizer.load(tmp_path, 8)


def test_ids_start_with_bos_are_cut_and_never_padded(tmp_path, file):
    edited(file, tmp_path / FILE, lambda c: c.update(
        padding={'strategy': {'Fixed': 64}, 'direction': 'Left', 'pad_to_multiple_of': None,
                 'pad_id': 0, 'pad_type_id': 0, 'pad_token': '<pad>'},
        truncation={'direction': 'Right', 'max_length': 2, 'strategy': 'LongestFirst',
                    'stride': 0},
    ))
    tokenizer = PromptTokenizer.load(tmp_path, 5, needs_bos=True)
    whole = PromptTokenizer.load(tmp_path, 500, needs_bos=True)
    text = 'pick up the red block and put it down'
    assert tokenizer.ids(text) == whole.ids(text)[:5]
    assert tokenizer.ids(text)[0] == 2 and 0 not in whole.ids(text)
    assert tokenizer.excess(text) == len(whole.ids(text)) - 5 and whole.excess(text) == 0


@pytest.mark.parametrize(('vocab', 'fits'), [(384, True), (512, True), (383, False)])
def test_every_id_must_have_a_row_of_the_table(file, vocab, fits):
    folder = file.parent
    if fits:
        assert PromptTokenizer.load(folder, 8, vocab=vocab).size == 384
        return
    with pytest.raises(ModelError, match='got a largest id of 383, expected 0 to 382'):
        PromptTokenizer.load(folder, 8, vocab=vocab)


def test_a_tokenizer_far_smaller_than_a_full_table_is_another_one(file):
    with pytest.raises(ModelError, match='got a largest id of 383, expected 128575 to 257151'):
        PromptTokenizer.load(file.parent, 8, vocab=257152)


@pytest.mark.parametrize(('family', 'needs', 'message'), [
    ('smolvla', True, 'got texts that do not start with a common id, expected a <bos>'),
    ('pi0', False, 'got texts that start with a common id, expected no <bos>'),
])
def test_bos_must_be_there_exactly_where_the_family_has_it(parity, family, needs, message):
    with pytest.raises(ModelError, match=message):
        PromptTokenizer.load(parity / family / 'checkpoint', 8, needs_bos=needs)


@pytest.mark.parametrize(('settings', 'has'), [
    ({'bos_token': '<bos>', 'add_bos_token': True}, True),
    ({'bos_token': {'content': '<bos>'}, 'tokenizer_class': 'GemmaTokenizer'}, True),
    ({'bos_token': '<bos>', 'add_bos_token': False, 'tokenizer_class': 'GemmaTokenizer'}, False),
    ({'bos_token': '<other>', 'add_bos_token': True}, False),
    ({'bos_token': '<bos>'}, False),
])
def test_bos_may_come_from_the_settings_beside_the_file(tmp_path, file, settings, has):
    edited(file, tmp_path / FILE, lambda c: c.update(post_processor=None))
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(settings))
    if has:
        whole = PromptTokenizer.load(file.parent, 99, needs_bos=True)
        assert PromptTokenizer.load(tmp_path, 99, needs_bos=True).ids('a b') == whole.ids('a b')
        return
    with pytest.raises(ModelError, match='do not start'):
        PromptTokenizer.load(tmp_path, 8, needs_bos=True)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / FILE).write_text('{"version": "1.0"')
    with pytest.raises(ModelError, match=r'tokenizer\.json: got'):
        PromptTokenizer.load(tmp_path, 8)


def test_pieces_need_their_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'sentencepiece', None)
    monkeypatch.setattr('importlib.util.find_spec', lambda _name: None)
    (tmp_path / 'tokenizer.model').write_bytes(b'')
    with pytest.raises(ModelError, match='got no package sentencepiece'):
        PromptTokenizer.load(tmp_path, 8)


def test_pieces_get_bos_in_front_where_the_family_has_it(tmp_path, monkeypatch):
    class Pieces:
        def __init__(self, model_file):
            assert model_file.endswith('tokenizer.model')

        def bos_id(self):
            return 2

        def vocab_size(self):
            return 300

        def encode(self, text):
            return [100 + ord(letter) for letter in text]

    module = type(sys)('sentencepiece')
    module.SentencePieceProcessor = Pieces
    monkeypatch.setitem(sys.modules, 'sentencepiece', module)
    monkeypatch.setattr('importlib.util.find_spec', lambda _name: True)
    (tmp_path / 'tokenizer.model').write_bytes(b'')
    assert PromptTokenizer.load(tmp_path, 2, vocab=300, needs_bos=True).ids('abc') == [2, 197]
    assert PromptTokenizer.load(tmp_path, 2, needs_bos=False).ids('abc') == [197, 198]
