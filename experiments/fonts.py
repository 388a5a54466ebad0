"""Capital letters in the fonts of Debian, one image per letter and font family.

Families of one package often differ in weight alone, so tasks are split by package. The fonts are
not part of dreamwarp: ``python -m experiments.fonts`` prints the command that installs them and,
once they are installed, writes a sheet of all letters.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from string import ascii_uppercase as LETTERS
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

# Debian packages of Latin text fonts; no pixel fonts, no symbols.
PACKAGES = """
    adf-accanthis adf-baskervald adf-berenis adf-gillius adf-ikarius adf-irianis adf-libris
    adf-mekanus adf-oldania adf-romande adf-solothurn adf-switzera adf-tribun adf-universalis
    adf-verana agave allerta anonymous-pro arapey arkpandora averia-gwf averia-sans-gwf
    averia-serif-gwf b612 bebas-neue beteckna breip cabin cantarell cardo century-catalogue
    clear-sans cmu comfortaa comic-neue compagnon courier-prime croscore crosextra-caladea
    crosextra-carlito dancingscript dejavu-core dkg-handwriting dosis dustin ebgaramond
    ecolier-court elstob engadget essays1743 eurofurence fantasque-sans fanwood femkeklaver firacode
    freefont-ttf georgewilliams gfs-artemisia gfs-didot gfs-neohellenic gnutypewriter go
    goudybookletter hack-ttf hermit humor-sans inconsolata inter isabella jetbrains-mono joscelyn
    junction junicode jura karla kaushanscript klaudia-berenika kristi lato league-mono
    league-spartan leckerli-one lemonada levien-museum levien-typoscript liberation lindenhill
    linuxlibertine lmodern lobster lobstertwo manrope millimetre monofur monoid mononoki
    national-park noto-mono ocr-a ocr-b okolaks oldstandard open-sans opendin opendyslexic osifont
    oxygen paratype play prociono quattrocento quicksand radisnoir roboto-slab roboto-unhinted
    routed-gothic rufscript sil-andika sil-charis sil-gentiumplus sjfonts smiley-sans sora staypuft
    stix summersby texgyre tiresias tlwg-purisa-ttf tlwg-typo-ttf tomsontalks tuffy ubuntu-title
    urw-base35 vollkorn yanone-kaffeesatz yrsa-rasa
""".split()  # noqa: SIM905
INSTALL = f"apt-get install --no-install-recommends {' '.join('fonts-' + p for p in PACKAGES)}"
SIZE = 28
# A letter fills this part of an image, as digits of MNIST do; it is drawn so much larger first.
FILLED, ENLARGED = 20 / 28, 8
# Styles that stand for a family, the plainest first.
PLAIN = ("regular", "book", "roman", "normal", "medium", "")
# Families of symbols in packages of letters.
SYMBOLS = ("D050000L", "Standard Symbols PS")


def find_families(package: str) -> dict[str, Path]:
    """The plainest file of each font family of a package."""
    try:
        listed = subprocess.check_output(
            ["dpkg-query", "--listfiles", f"fonts-{package}"], text=True, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError) as problem:
        raise FileNotFoundError(
            f"The fonts of Debian's package fonts-{package} must be installed: `{INSTALL}`."
        ) from problem
    found: dict[str, tuple[int, Path]] = {}
    for path in sorted(map(Path, listed.splitlines())):
        if path.suffix.lower() not in (".ttf", ".otf"):
            continue
        family, style = ImageFont.truetype(path).getname()
        plain = (style or "").lower()
        rank = PLAIN.index(plain) if plain in PLAIN else len(PLAIN)
        if family and family not in SYMBOLS and rank < found.get(family, (len(PLAIN) + 1,))[0]:
            found[family] = rank, path
    return {family: path for family, (_, path) in sorted(found.items())}


def draw_letter(font: ImageFont.FreeTypeFont, letter: str) -> NDArray[np.uint8]:
    """A bright letter on black, (28, 28), its longer side 20 pixels, in the middle."""
    left, top, right, bottom = font.getbbox(letter)
    canvas = Image.new("L", (right - left + 2, bottom - top + 2))
    ImageDraw.Draw(canvas).text((1 - left, 1 - top), letter, fill=255, font=font)
    ink = canvas.getbbox()
    if ink is None:
        raise ValueError(f"{font.getname()} has no letter {letter}.")
    canvas = canvas.crop(ink)
    scale = FILLED * SIZE / max(canvas.size)
    shape = tuple(max(1, round(scale * side)) for side in canvas.size)
    image = Image.new("L", (SIZE, SIZE))
    corner = tuple((SIZE - side) // 2 for side in shape)
    image.paste(canvas.resize(shape, Image.Resampling.LANCZOS), corner)
    return np.asarray(image)


@cache
def load_letters() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Letters (n_families, 26, 28, 28), and the number of the package of each family.

    Families without 26 different capital letters are left out.
    """
    kept, packages = [], []
    for number, package in enumerate(PACKAGES):
        for path in find_families(package).values():
            font = ImageFont.truetype(path, SIZE * ENLARGED)
            try:
                letters = np.stack([draw_letter(font, letter) for letter in LETTERS])
            except (OSError, ValueError):
                continue
            if len(np.unique(letters.reshape(len(letters), -1), axis=0)) == len(LETTERS):
                kept.append(letters)
                packages.append(number)
    return np.stack(kept), np.array(packages)


def main() -> int:
    """Print how to install the fonts, and write a sheet of letters if they are installed."""
    print(INSTALL)
    letters, packages = load_letters()
    sheet: NDArray[Any] = np.concatenate(np.concatenate(letters, axis=1), axis=1)
    Path("out").mkdir(exist_ok=True)
    Image.fromarray(sheet).save("out/fonts.png")
    print(f"{len(letters)} families in {len(np.unique(packages))} packages: out/fonts.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
