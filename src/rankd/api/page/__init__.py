"""The pages: the front page, a board's page, and `<rankd-board>`, the live table that both and anybody else can use.

    board/*.js, board/*.css → /rankd-board.js, one script      files/* → /assets/…, as they are

Nothing is built beforehand and nothing comes from elsewhere. What players wrote reaches a page as JSON and is shown as
text; the policy allows no script and no style but these files.
"""

from rankd.api.page.assets import BOARD_SCRIPT, Asset, asset
from rankd.api.page.html import board_page, front_page, made_up_board_page, page_policy

__all__ = ["BOARD_SCRIPT", "Asset", "asset", "board_page", "front_page", "made_up_board_page", "page_policy"]
