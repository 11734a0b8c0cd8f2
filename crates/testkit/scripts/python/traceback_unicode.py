grüße = "äöü"
assert grüße == "ß", "…"
