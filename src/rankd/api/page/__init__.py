"""The pages: the front page, a board's page, and `<rankd-board>`, the live table that any page can embed.

    board/*.js, board/*.css → /rankd-board.js, one script      files/* → /assets/…, as they are

Nothing is built beforehand or loaded from other hosts. Texts of players reach a page as JSON and are shown as text; the
policy allows only these scripts and styles.
"""

from rankd.api.page.assets import BOARD_SCRIPT, Asset, asset
from rankd.api.page.html import board_page, front_page, made_up_board_page, page_policy

__all__ = ["BOARD_SCRIPT", "Asset", "asset", "board_page", "front_page", "made_up_board_page", "page_policy"]
