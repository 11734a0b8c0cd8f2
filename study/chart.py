"""The chart: processed tokens of each task, on a logarithmic scale."""
import math
from xml.sax.saxutils import escape

LEFT, WIDTH, BAR, GAP = 230, 470, 14, 18
COLOURS = {"direct": "#9aa5b1", "code mode": "#2b6cb0"}


def chart(rows):
    least, most = 2, math.ceil(math.log10(max(max(a["processed"], b["processed"]) for _, a, b in rows)))

    def x(tokens):
        return LEFT + WIDTH * max(0, math.log10(max(tokens, 1)) - least) / (most - least)

    height = 60 + len(rows) * (2 * BAR + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 80} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="#ffffff"/>',
        '<text x="10" y="20" font-size="14">Tokens that a model processes per task (logarithmic)</text>',
    ]
    for index, (kind, colour) in enumerate(COLOURS.items()):
        at = LEFT + 220 + index * 90
        parts.append(f'<rect x="{at}" y="10" width="12" height="12" fill="{colour}"/><text x="{at + 17}" y="20">{kind}</text>')
    for power in range(least, most + 1):
        at = x(10**power)
        parts.append(f'<line x1="{at:.0f}" y1="34" x2="{at:.0f}" y2="{height - 20}" stroke="#e2e8f0"/>')
        parts.append(f'<text x="{at:.0f}" y="{height - 6}" text-anchor="middle" fill="#4a5568">{10**power:,}</text>')
    top = 40
    for task, direct, script in rows:
        parts.append(f'<text x="{LEFT - 10}" y="{top + BAR + 4}" text-anchor="end">{escape(task.name)}</text>')
        for figures, colour in zip((direct, script), COLOURS.values()):
            end = x(figures["processed"])
            parts.append(f'<rect x="{LEFT}" y="{top}" width="{end - LEFT:.0f}" height="{BAR - 1}" fill="{colour}"/>')
            parts.append(f'<text x="{end + 5:.0f}" y="{top + BAR - 3}">{figures["processed"]:,}</text>')
            top += BAR
        top += GAP
    return "\n".join([*parts, "</svg>"]) + "\n"
