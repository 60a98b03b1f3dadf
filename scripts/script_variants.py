#!/usr/bin/env python3
"""Prints tk_variants, the table of Chinese variants in whisper_npu.c.

Usage: script_variants.py [Unihan_Variants.txt[.bz2]]

The pairs are the fields kTraditionalVariant and kSimplifiedVariant of the Unihan database, which
Debian's package unicode-data installs, where the simplified character is in GB 2312 and the
traditional one in Big5 or the Hong Kong supplement. Unihan gives some simplified characters
several traditional ones, often the character itself among them; COMMON says which is written.
The others are only read back: they too become the simplified one.
"""
import bz2
import sys

# What is meant most often where Unihan leaves a choice, by the editor; itself: it stays.
COMMON = dict(zip(
    "发汇脏荡获钟须历复冲尽并当坛系只台面制谷志征向卷舍胡表致蒙伙困姜累症板注秋曲朱沈折御回才出借"
    "合同家千克了冬刮卜吁挽旋栗漓净坂咤芸霉闲鉴锈钩",
    "發匯髒蕩獲鐘須歷復衝盡並當壇系只台面制谷志征向卷舍胡表致蒙伙困姜累症板注秋曲朱沈折御回才出借"
    "合同家千克了冬刮卜吁挽旋栗漓淨坂咤芸霉閒鑑鏽鉤"))
# Characters of both scripts that stand for another one in text of the other script only.
SHARED_HANS = "后里几云于丑余郁松斗准划干仆佣范采咸淀凶杰朴着"
SHARED_HANT = "後裡幾雲於醜餘鬱鬆鬥準劃幹僕傭範採鹹澱兇傑樸著"
SHARED_BACK = {"著": "着", "乾": "干", "瞭": "了", "藉": "借", "徵": "征"}
# Traditional characters and forms of them that Unihan gives no simplified variant.
EXTRA = "后後于於凶兇里裏为爲群羣众衆线綫卫衞说説启啓床牀峰峯污汙尝嚐炼鍊吃喫叹歎么麽鸡鷄占佔布佈升昇" \
        "游遊托託唇脣药葯周週只祇你妳欲慾踪蹤"
LINE = 5


def load(name):
    """Returns the two fields as dictionaries of code points."""
    simple, traditional = {}, {}
    opener = bz2.open if name.endswith(".bz2") else open
    with opener(name, "rt", encoding="utf-8") as lines:
        for line in lines:
            part = line.rstrip().split("\t")
            if len(part) == 3 and part[1] in ("kSimplifiedVariant", "kTraditionalVariant"):
                field = simple if part[1] == "kSimplifiedVariant" else traditional
                field[chr(int(part[0][2:], 16))] = [chr(int(v[2:], 16)) for v in part[2].split()]
    return simple, traditional


def is_in(char, codec):
    try:
        return bool(char.encode(codec))
    except UnicodeEncodeError:
        return False


def pairs(simple, traditional):
    """Returns the pairs (simplified, traditional) for both directions, and those for one."""
    known = {(s, t) for s in traditional for t in traditional[s]}
    known |= {(s, t) for t in simple for s in simple[t]}
    known = {(s, t) for s, t in known if s != t and is_in(s, "gb2312") and is_in(t, "big5hkscs")
             and "\u3400" <= t < "\ua000"}
    both, back = [], []
    shared = dict(zip(SHARED_HANS, SHARED_HANT))
    for s in sorted({s for s, _ in known}):
        others = sorted((t for a, t in known if a == s),
                        key=lambda t: (not is_in(t, "big5"), t not in traditional.get(s, []), t))
        first = s if s in shared else COMMON.get(s, others[0])
        both += [(s, first)] if first != s else []
        back += [(s, t) for t in others if t != first and not is_in(t, "gb2312")]
    taken = {t for _, t in both + back}
    back += [(s, t) for s, t in zip(EXTRA[::2], EXTRA[1::2]) if t not in taken]
    return both, back


def show(name, meaning, flat):
    print(f"/* {meaning} */\nstatic const uint16_t {name}[][2] = {{")
    for i in range(0, len(flat), LINE):
        print("    " + ", ".join(f"{{0x{ord(s):x},0x{ord(t):x}}}" for s, t in flat[i:i + LINE]) +
              ("," if i + LINE < len(flat) else ""))
    print("};\n")


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode/Unihan_Variants.txt.bz2"
    both, back = pairs(*load(name))
    show("tk_variants", "Simplified and traditional characters, in the order of the former.", both)
    show("tk_back", "Further traditional characters of simplified ones.", back)
    show("tk_shared_hans", "Characters of both scripts, and what they stand for in simplified text.",
         list(zip(SHARED_HANS, SHARED_HANT)))
    show("tk_shared_hant", "The same in traditional text.", list(SHARED_BACK.items()))


if __name__ == "__main__":
    main()
