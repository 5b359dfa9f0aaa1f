"""The picture of what a policy sees shows the numbers that it was given, and what is wrong."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from PIL import Image

from reflex_ros.core.errors import ConfigError
from reflex_ros.report.picture import COMMAND, MEASURED
from reflex_ros.report.views import BAND, DPI, LINES, OUTLIER, RESERVE, draw_sight, write_sight
from reflex_ros.report.views_text import lay_out, shown

NAMES = ('joint1', 'joint2', 'joint3', 'joint4', 'joint5', 'joint6', 'gripper')


def make_sight(*, joints=7, cameras=('base', 'wrist'), absent=(), far=(), **changes):
    generator = np.random.default_rng(5)
    names = [NAMES[at % 7] if joints == 7 else f'left_long_joint_{at}.pos' for at in range(joints)]
    columns = tuple(SimpleNamespace(name=n, unit='rad', usual=(-1.0, 1.0)) for n in names)
    sigmas = np.linspace(-2, 2, joints)
    for at in far:
        sigmas[at] = 57.3
    pixels = generator.random((20, 30, 3)).astype(np.float32)
    views = tuple(
        SimpleNamespace(name=n, pixels=None if n in absent else pixels,
                        source_wh=None if n in absent else (640, 480))
        for n in cameras
    )  # fmt: skip
    values = {
        'policy': 'pi0', 'origin': 'file.npz, row 0', 'task': 'go', 'views': views,
        'state_columns': columns, 'action_columns': columns, 'state': np.linspace(0, 1, joints),
        'sigmas': sigmas, 'normalised': sigmas, 'outliers': tuple(far), 'prompt': 'go\n',
        'tokens': ('<bos>', 'go', '\n'), 'excess': 0,
        'chunk': generator.normal(size=(10, joints)), 'executed': 6, 'step_period_s': None,
        'warnings': (),
    }  # fmt: skip
    return SimpleNamespace(**{**values, **changes})


def axes_named(figure, start):
    return next(a for a in figure.axes if a.get_title(loc='left').startswith(start))


def texts(figure):
    return [t.get_text() for t in figure.texts] + [
        t.get_text() for axes in figure.axes for t in axes.texts]


def lines_of(axes, color):
    return [line for line in axes.lines if line.get_color() == color]


def test_the_curves_are_the_chunk_and_its_executed_part_stands_out():
    sight = make_sight()
    figure = draw_sight(sight)
    for at, column in enumerate(sight.action_columns):
        axes = axes_named(figure, f'{column.name} [')
        (done,), (rest,) = lines_of(axes, COMMAND), lines_of(axes, RESERVE)
        np.testing.assert_array_equal(done.get_ydata(), sight.chunk[:6, at])
        np.testing.assert_array_equal(rest.get_ydata(), sight.chunk[5:, at])
        (dot,) = lines_of(axes, MEASURED)
        assert dot.get_ydata()[0] == sight.state[at]
        low, high = axes.get_ylim()
        assert low <= min(sight.chunk[:, at].min(), sight.state[at]) and high >= max(
            sight.chunk[:, at].max(), sight.state[at])
        (band,) = axes.patches
        extent = band.get_extents().transformed(axes.transData.inverted())
        assert (extent.y0, extent.y1) == pytest.approx((-1, 1))
        assert to_hex(band.get_facecolor()) == BAND.lower()


def test_a_joint_at_rest_does_not_seem_to_shake():
    sight = make_sight()
    sight.chunk[:, 2] = sight.state[2] + 1e-4 * sight.chunk[:, 2]
    low, high = axes_named(draw_sight(sight), 'joint3 [').get_ylim()
    # a twentieth of the usual range of -1 to 1
    assert high - low == pytest.approx(0.1)


def test_the_images_are_drawn_as_they_are_in_the_order_of_the_slots():
    sight = make_sight()
    figure = draw_sight(sight)
    for slot, view in enumerate(sight.views):
        axes = axes_named(figure, f'slot {slot}  {view.name}')
        np.testing.assert_array_equal(axes.images[0].get_array(), view.pixels)
        assert axes.get_xlabel() == '640 x 480 seen as 30 x 20'


def test_an_absent_camera_is_shown_as_absent():
    figure = draw_sight(make_sight(absent=('wrist',)))
    axes = axes_named(figure, 'slot 1  wrist')
    assert not axes.images and 'absent' in axes.texts[0].get_text()
    assert any('1 of 2 images' in text for text in texts(figure))


def test_a_state_far_from_the_training_data_is_marked_and_no_other():
    figure = draw_sight(make_sight(far=(3,), warnings=('state joint4 is far',)))
    axes = axes_named(figure, 'state')
    marked = [t for t in axes.texts if t.get_color() == OUTLIER]
    assert [t.get_text() for t in marked] == ['+57.30  !']
    assert any(text == '!  state joint4 is far' for text in texts(figure))
    assert axes.get_yticklabels()[3].get_text() == 'joint4  +0.500 rad'


def test_an_ordinary_state_has_no_mark():
    axes = axes_named(draw_sight(make_sight()), 'state')
    assert not [t for t in axes.texts if t.get_color() == OUTLIER]


def test_a_state_that_is_no_number_is_drawn_as_far():
    sight = make_sight(far=(0,))
    sight.sigmas[0] = np.nan
    axes = axes_named(draw_sight(sight), 'state')
    assert [t.get_color() for t in axes.texts[:2]] == [OUTLIER, MEASURED]


def test_every_token_is_a_box_with_its_text():
    sight = make_sight(tokens=('<bos>', 'a', ' b', '\n', '$x^2$'), excess=3)
    axes = axes_named(draw_sight(sight), 'text')
    assert [t.get_text() for t in axes.texts] == ['<bos>', 'a', ' b', '↵', '$x^2$']
    assert len(axes.patches) == 5
    assert '5 tokens, 3 cut off' in axes.get_title(loc='left')


def test_a_prompt_too_long_to_draw_says_so():
    axes = axes_named(draw_sight(make_sight(tokens=('word ' * 30,) * 40)), 'text')
    drawn = axes.get_title(loc='left')
    assert 'shown' in drawn and len({t.get_position()[1] for t in axes.texts}) == LINES


def test_the_unknown_period_is_said_and_a_known_one_too():
    assert any('does not store' in text for text in texts(draw_sight(make_sight())))
    assert any('20 ms each' in text for text in texts(draw_sight(make_sight(step_period_s=0.02))))


@pytest.mark.parametrize(('joints', 'cameras'), [(7, 1), (7, 3), (14, 6), (6, 4)])
def test_the_file_has_the_size_of_its_content(tmp_path, joints, cameras):
    sight = make_sight(joints=joints, cameras=tuple(f'camera{n}' for n in range(cameras)),
                       absent=('camera0',) if cameras > 1 else ())  # fmt: skip
    path = write_sight(tmp_path / 'a.png', sight)
    width, height = draw_sight(sight).get_size_inches()
    with Image.open(path) as picture:
        assert picture.format == 'PNG' and picture.size == (14 * DPI, int(height * DPI))
        assert width == 14 and 6.5 * DPI < picture.size[1] < 17 * DPI


def test_nothing_is_drawn_outside_the_picture_or_over_its_neighbour():
    figure = draw_sight(make_sight(joints=14, cameras=('a', 'b', 'c', 'd'), far=(0, 5)))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    boxes = [axes.get_tightbbox(canvas.get_renderer()) for axes in figure.axes]
    for box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    for at, box in enumerate(boxes):
        for other in boxes[at + 1 :]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across <= 1 or down <= 1, (box, other)


def test_without_an_observation_there_is_no_picture(tmp_path):
    with pytest.raises(ConfigError, match='--input'):
        write_sight(tmp_path / 'a.png', None)
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match='no_folder'):
        write_sight(tmp_path / 'no_folder' / 'a.png', make_sight())


def test_a_token_that_does_not_fit_goes_on_to_the_next_line():
    pieces = lay_out(('abc', 'def', 'g\n', 'h', 'x' * 12), 6)
    assert [(p.token, p.text, p.line, p.start) for p in pieces] == [
        (0, 'abc', 0, 0), (1, 'def', 0, 3), (2, 'g↵', 1, 0), (3, 'h', 2, 0),
        (4, 'xxxxxx', 3, 0), (4, 'xxxxxx', 4, 0)]


def test_every_token_has_something_to_see():
    assert (shown('\n'), shown(''), shown(' a'), shown('\x00')) == ('↵', '·', ' a', '�')
