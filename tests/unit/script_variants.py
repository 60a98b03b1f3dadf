#!/usr/bin/env python3
"""Prints the tables of Chinese variants in whisper_npu.c.

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
# Words of two characters that settle what a simplified character becomes that stands for several:
# first it, what it becomes (itself: it stays), and then the words. By the editor; everyday words,
# and those that two others may form by chance.
WORDS = {
    "发髮": "头发 理发 毛发 发型 白发 短发 金发 假发 黑发 卷发 染发 洗发 发廊 发夹 秀发 美发 脱发 护发 发丝 发髻 烫发 剪发 发梢 发胶",
    "发發": "发生 发现 发展 发表 发布 发出 发送 发达 发行 发射 发挥 发动 发起 发言 发票 发电 发音 发给 发放 发烧 发热 发誓 发觉 "
           "发作 发火 发怒 发笑 发问 发财 发货 发文 发信 发来",
    "后后": "皇后 太后 王后 后妃 母后 影后 歌后 天后 后羿",
    "里里": "公里 英里 里程 海里 邻里 故里 乡里 万里 千里 百里 里约 里根 里昂 阿里 马里",
    "面麵": "面包 面条 面粉 拉面 汤面 面食 面团 炒面 凉面 泡面 面馆 便面 肉面 面糊 煮面 吃面",
    "干乾": "干净 干燥 饼干 干杯 干脆 干旱 晒干 烘干 擦干 吹干 干枯 干涸 干货 干粮 干酪 干洗 风干 干妈 干爹 肉干 豆干 果干 萄干 干草 "
           "干冰",
    "干干": "干涉 干扰 干预 若干 相干 干戈 天干 干支",
    "系係": "关系 干系",
    "系繫": "联系 维系 系鞋",
    "只隻": "一只 两只 三只 四只 五只 六只 七只 八只 九只 十只 几只 每只 这只 那只 哪只 船只",
    "只只": "只是 只有 只能 只要 只会 只好 只不 只想 只需 只可 只为 只得 只在 只剩 只管 只顾 只怕 只见 只用 只说 只知 只看 只限 只差 "
           "只代 只对 只给 只让 只占 只适 只包 只存 只做 只听 只买 只卖 只支 只接 只从 只关 只属 只针 只靠 只求 只够 只当 只把 只被 "
           "只作 只算 只因 只由 只提 只允 只供 只来 只去",
    "台颱": "台风",
    "台檯": "台灯 柜台",
    "复複": "复杂 重复 复制 复印 复合 复数 复习 复写 复式 复选 复审 繁复 复查 复赛 复述 复诊",
    "复覆": "答复 回复 反复 批复",
    "历曆": "日历 农历 阳历 阴历 公历 历法 挂历 年历 月历 黄历",
    "历歷": "历史 历经 历任 历届 历程 历代 历来 历时 历年 历练",
    "云云": "人云 亦云 云云 所云",
    "谷穀": "稻谷 谷物 五谷 谷类 谷粒 谷仓",
    "钟鍾": "钟情 钟爱 龙钟",
    "松松": "松树 松鼠 松柏 松林 青松 松子 松木 松果 松针 松露 雪松 拉松",
    "斗斗": "斗篷 北斗 漏斗 烟斗 泰斗 斗笠 星斗 熨斗",
    "郁郁": "浓郁 馥郁",
    "准准": "批准 准许 不准 准予 核准 获准 准考 准入",
    "准準": "准备 准时 准则 准确",
    "划划": "划船 划算 划水 划桨",
    "佣佣": "佣金",
    "采采": "神采 风采 文采",
    "咸咸": "咸阳 咸丰",
    "淀淀": "海淀 洋淀",
    "丑丑": "小丑 丑角 丑时",
    "几几": "茶几",
    "征徵": "特征 象征 征求 征收 征集 征兵 征税 征用 征召 征询 征兆 表征",
    "制製": "制造 制作 制品 制药 制片 研制 复制 印制 录制 监制 绘制 制冷 制剂 定制",
    "志誌": "杂志 日志 标志",
    "向嚮": "向往 向导",
    "卷捲": "卷起 席卷 卷入 龙卷 卷曲 卷发",
    "舍捨": "舍得 舍弃 不舍 取舍 割舍 施舍",
    "胡鬍": "胡子 胡须",
    "须鬚": "胡须 触须",
    "表錶": "手表 钟表 怀表 腕表",
    "表表": "表示 表现 表达 表明 表面 表演 表情 表格 表决 表白 表述 表扬 表态",
    "致緻": "精致 细致 雅致 景致",
    "姜薑": "生姜 姜汤 姜茶 姜片",
    "板闆": "老板",
    "注註": "注册 注释 注解 备注 注销",
    "折摺": "折叠 折扇",
    "御禦": "防御 抵御",
    "回迴": "回避 轮回 迂回 回荡 回廊",
    "借藉": "借口 借助 凭借 借此 借由",
    "秋鞦": "秋千",
    "千韆": "秋千",
    "刮颳": "刮风",
    "栗慄": "战栗",
    "脏臟": "心脏 内脏 肝脏 肾脏 脏器 五脏 脏腑 肺脏",
    "汇彙": "词汇 汇编 汇总",
    "荡盪": "回荡 震荡 激荡 动荡",
    "获穫": "收获",
    "冲沖": "冲洗 冲泡 冲刷 冲水 冲凉 冲淡 冲澡 冲绳",
    "尽儘": "尽管 尽量 尽快 尽早 尽可",
    "并併": "合并 吞并 并购 兼并 并入",
    "坛罈": "酒坛 坛子",
    "签籤": "标签 书签 抽签 牙签",
    "恶噁": "恶心",
    "游遊": "旅游 游戏 导游 游客 游览 游行 游玩 郊游 出游 游记 漫游 游乐",
    "周週": "周末 周一 周二 周三 周四 周五 周六 周日 每周 上周 下周 本周 周期",
    "托託": "委托 拜托 托付 寄托",
    "弥瀰": "弥漫",
    "辟闢": "开辟 辟谣",
    "帘簾": "窗帘 门帘",
}
# The same for simplified text: words of traditional characters, and what stays of them.
WORDS_BACK = {
    "著著": "著名 著作 名著 原著 顯著 著稱 專著 編著 土著 巨著", "乾乾": "乾隆 乾坤",
    "藉藉": "慰藉 狼藉", "瞭瞭": "瞭望"
}


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


NOTHING = "\u3000"  # a blank of three bytes


def words(settled):
    """Returns (first, second, what they become); NOTHING: as by itself. A word may settle both."""
    found = {}
    for (char, target), of in settled.items():
        for word in of.split():
            assert len(word) == 2 and char in word, word
            found.setdefault(word, [NOTHING, NOTHING])[word.index(char)] = target
    return [(*word, *change) for word, change in sorted(found.items())]


def show(name, meaning, flat):
    line = 46 // len(flat[0])  # TK_ROW is three times that, and a NUL
    rows = ["".join(map("".join, flat[i:i + line])) for i in range(0, len(flat), line)]
    print(f"/* {meaning} */\nstatic const char {name}[][TK_ROW] = {{")
    print(",\n".join(f'    "{row}"' for row in rows) + "\n};\n")


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/unicode/Unihan_Variants.txt.bz2"
    both, back = pairs(*load(name))
    show("tk_variants", "Simplified and traditional characters, in the order of the former.", both)
    show("tk_back", "Further traditional characters of simplified ones.", back)
    show("tk_shared_hans", "Characters of both scripts, and what they stand for in simplified text.",
         list(zip(SHARED_HANS, SHARED_HANT)))
    show("tk_shared_hant", "The same in traditional text.", list(SHARED_BACK.items()))
    show("tk_words_hant", "Simplified words, and what their characters become; a blank: what they "
         "are by themselves.", words(WORDS))
    show("tk_words_hans", "Traditional words in the same way.", words(WORDS_BACK))


if __name__ == "__main__":
    main()
