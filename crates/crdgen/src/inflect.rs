//! English plurals and word parts: the parts of gobuffalo/flect 1.0.3 (MIT) that determine the kind and the plural of
//! a chart's type (`ident.go`, `camelize.go`, `pascalize.go`, `pluralize.go`, `plural_rules.go`).
//!
//! flect's oddities are kept: a plural is part of the address of every object of a type, so it has to equal the one
//! that the Go system generates.

/// `Pascalize`: `http-server` becomes `HTTPServer`.
pub(crate) fn pascal_case(text: &str) -> String {
    let parts = parts(text);
    let camel = camel_case(&parts);
    let Some(first) = parts.first() else {
        return camel;
    };
    let length = if is_acronym(first) { first.len() } else { 1 };
    let capitals = length.min(camel.len());
    camel[..capitals].to_ascii_uppercase() + &camel[capitals..]
}

/// `Pluralize`: `FireworksApp` becomes `FireworksApps`.
pub(crate) fn plural(text: &str) -> String {
    let parts = parts(text);
    let Some(last) = parts.last() else {
        return String::new();
    };
    if let Some(word) = by_singular(text) {
        return replace_suffix(text, text, word.plural);
    }
    let lower = last.to_ascii_lowercase();
    if is_plural(text) || is_plural(&lower) {
        return text.to_owned();
    }
    if let Some(word) = by_singular(&lower) {
        let capitalised = last.starts_with(|c: char| c.is_ascii_uppercase());
        let plural = if capitalised {
            capitalise(word.plural)
        } else {
            word.plural.to_owned()
        };
        return replace_suffix(text, last, &plural);
    }
    if let Some(plural) = by_suffix(last) {
        return replace_suffix(text, last, &plural);
    }
    if lower.ends_with('s') {
        text.to_owned()
    } else {
        format!("{text}s")
    }
}

/// Whether flect writes the word all in capitals.
fn is_acronym(word: &str) -> bool {
    ACRONYMS
        .binary_search(&word.to_ascii_uppercase().as_str())
        .is_ok()
}

/// `toParts`: splits at separators and at capitals, and writes acronyms in capitals.
fn parts(text: &str) -> Vec<String> {
    let text = text.trim();
    if is_acronym(text) {
        return vec![text.to_ascii_uppercase()];
    }
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut previous_is_upper = false;
    for c in text.chars() {
        let starts_part =
            is_separator(c) || (c.is_ascii_uppercase() && (!previous_is_upper || is_acronym(&part)));
        if starts_part || !c.is_ascii_graphic() {
            push_part(&mut parts, &part);
            part.clear();
        }
        if is_separator(c) || c.is_ascii_graphic() {
            part.push(c);
        }
        previous_is_upper = c.is_ascii_uppercase();
    }
    push_part(&mut parts, &part);
    parts
}

fn push_part(parts: &mut Vec<String>, part: &str) {
    let part = part.trim_matches(is_separator);
    if is_acronym(part) {
        parts.push(part.to_ascii_uppercase());
    } else if !part.is_empty() {
        parts.push(part.to_owned());
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, '_' | ' ' | ':' | '-' | '/') || c.is_ascii_whitespace()
}

/// `Camelize`: the first part in lower case, the others with a capital first letter.
fn camel_case(parts: &[String]) -> String {
    let mut out = String::new();
    for (at, part) in parts.iter().enumerate() {
        let letters = part
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>();
        out += &if at == 0 {
            letters.to_ascii_lowercase()
        } else {
            capitalise(&letters)
        };
    }
    out
}

fn capitalise(word: &str) -> String {
    let mut out = word.to_owned();
    if let Some(first) = out.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    out
}

fn replace_suffix(text: &str, old: &str, new: &str) -> String {
    format!("{}{new}", text.strip_suffix(old).unwrap_or(text))
}

fn by_singular(word: &str) -> Option<&'static Word> {
    DICTIONARY.iter().find(|entry| entry.singular == word)
}

fn is_plural(word: &str) -> bool {
    let entries = DICTIONARY.iter().filter(|entry| !entry.one_way);
    entries
        .into_iter()
        .any(|entry| entry.plural == word || entry.alternative == Some(word))
}

/// Applies the first matching rule: the dictionary as endings of compound words, newest first as flect inserts them,
/// then the list of endings. A word that already ends like the plural is not changed.
fn by_suffix(word: &str) -> Option<String> {
    let compounds = DICTIONARY
        .iter()
        .rev()
        .filter(|entry| !entry.exact)
        .map(|entry| (entry.singular, entry.plural));
    let endings = ENDINGS.iter().copied();
    for (singular, plural) in compounds.chain(endings) {
        if word.ends_with(plural) {
            return Some(word.to_owned());
        }
        if let Some(stem) = word.strip_suffix(singular) {
            return Some(format!("{stem}{plural}"));
        }
    }
    None
}

/// One entry of flect's dictionary.
struct Word {
    singular: &'static str,
    plural: &'static str,
    /// Another plural, recognised but never generated.
    alternative: Option<&'static str>,
    /// Whether its plural is not recognised as a plural.
    one_way: bool,
    /// Whether it does not match as the ending of a compound word.
    exact: bool,
}

const fn word(singular: &'static str, plural: &'static str) -> Word {
    Word {
        singular,
        plural,
        alternative: None,
        one_way: false,
        exact: false,
    }
}

impl Word {
    const fn or(self, alternative: &'static str) -> Self {
        Self {
            alternative: Some(alternative),
            ..self
        }
    }

    const fn one_way(self) -> Self {
        Self {
            one_way: true,
            ..self
        }
    }

    const fn exact(self) -> Self {
        Self { exact: true, ..self }
    }
}

/// flect's dictionary in its order, which decides between compound words.
#[rustfmt::skip]
const DICTIONARY: &[Word] = &[
    word("aircraft", "aircraft"),
    word("beef", "beef").or("beefs"),
    word("bison", "bison"),
    word("blues", "blues").one_way(),
    word("chassis", "chassis"),
    word("deer", "deer"),
    word("fish", "fish").or("fishes"),
    word("moose", "moose"),
    word("police", "police"),
    word("salmon", "salmon").or("salmons"),
    word("series", "series"),
    word("sheep", "sheep"),
    word("shrimp", "shrimp").or("shrimps"),
    word("species", "species"),
    word("swine", "swine").or("swines"),
    word("trout", "trout").or("trouts"),
    word("tuna", "tuna").or("tunas"),
    word("you", "you"),
    word("child", "children"),
    word("ox", "oxen").exact(),
    word("foot", "feet"),
    word("goose", "geese"),
    word("man", "men"),
    word("human", "humans"),
    word("louse", "lice").exact(),
    word("mouse", "mice"),
    word("tooth", "teeth"),
    word("woman", "women"),
    word("die", "dice").exact(),
    word("person", "people"),
    word("adieu", "adieux").or("adieus"),
    word("fabliau", "fabliaux"),
    word("bureau", "bureaus").or("bureaux"),
    word("criterion", "criteria"),
    word("ganglion", "ganglia").or("ganglions"),
    word("lexicon", "lexica").or("lexicons"),
    word("mitochondrion", "mitochondria").or("mitochondrions"),
    word("noumenon", "noumena"),
    word("phenomenon", "phenomena"),
    word("taxon", "taxa"),
    word("media", "media"),
    word("medium", "media").or("mediums").one_way(),
    word("stadium", "stadiums").or("stadia"),
    word("aquarium", "aquaria").or("aquariums"),
    word("auditorium", "auditoria").or("auditoriums"),
    word("symposium", "symposia").or("symposiums"),
    word("curriculum", "curriculums").or("curricula"),
    word("quota", "quotas"),
    word("alumnus", "alumni").or("alumnuses"),
    word("bacillus", "bacilli"),
    word("cactus", "cacti").or("cactuses"),
    word("coccus", "cocci"),
    word("focus", "foci").or("focuses"),
    word("locus", "loci").or("locuses"),
    word("nucleus", "nuclei").or("nucleuses"),
    word("octopus", "octupuses").or("octopi"),
    word("radius", "radii").or("radiuses"),
    word("syllabus", "syllabi"),
    word("corpus", "corpora").or("corpuses"),
    word("genus", "genera"),
    word("alumna", "alumnae"),
    word("vertebra", "vertebrae"),
    word("differentia", "differentiae"),
    word("minutia", "minutiae"),
    word("vita", "vitae"),
    word("larva", "larvae"),
    word("postcava", "postcavae"),
    word("praecava", "praecavae"),
    word("uva", "uvae"),
    word("apex", "apices").or("apexes"),
    word("codex", "codices").or("codexes"),
    word("index", "indices").or("indexes"),
    word("latex", "latices").or("latexes"),
    word("vertex", "vertices").or("vertexes"),
    word("vortex", "vortices").or("vortexes"),
    word("appendix", "appendices").or("appendixes"),
    word("radix", "radices").or("radixes"),
    word("helix", "helices").or("helixes"),
    word("axis", "axes").exact(),
    word("crisis", "crises"),
    word("ellipsis", "ellipses").one_way(),
    word("genesis", "geneses"),
    word("oasis", "oases"),
    word("thesis", "theses"),
    word("testis", "testes"),
    word("base", "bases"),
    word("basis", "bases").one_way(),
    word("alias", "aliases").exact(),
    word("vedalia", "vedalias"),
    word("use", "uses").exact(),
    word("abuse", "abuses"),
    word("cause", "causes"),
    word("clause", "clauses"),
    word("cruse", "cruses"),
    word("excuse", "excuses"),
    word("fuse", "fuses"),
    word("house", "houses"),
    word("misuse", "misuses"),
    word("muse", "muses"),
    word("pause", "pauses"),
    word("ache", "aches"),
    word("topaz", "topazes"),
    word("buffalo", "buffaloes").or("buffalos"),
    word("potato", "potatoes"),
    word("tomato", "tomatoes"),
    word("equipment", "equipment"),
    word("information", "information"),
    word("jeans", "jeans"),
    word("money", "money"),
    word("news", "news"),
    word("rice", "rice"),
    word("dwarf", "dwarfs").or("dwarves"),
    word("hoof", "hoofs").or("hooves"),
    word("thief", "thieves"),
    word("chive", "chives"),
    word("hive", "hives"),
    word("move", "moves"),
    word("movie", "movies"),
    word("cookie", "cookies"),
    word("pretorium", "pretoriums"),
    word("agenda", "agendas"),
    word("formula", "formulas").or("formulae"),
    word("shoe", "shoes"),
    word("toe", "toes").exact(),
    word("graffiti", "graffiti"),
    word("ID", "IDs").exact(),
];

/// flect's endings in its order; the first match wins.
#[rustfmt::skip]
const ENDINGS: &[(&str, &str)] = &[
    ("tive", "tives"),
    ("eaf", "eaves"),
    ("oaf", "oaves"),
    ("afe", "aves"),
    ("arf", "arves"),
    ("rfe", "rves"),
    ("rf", "rves"),
    ("lf", "lves"),
    ("fe", "ves"),
    ("ay", "ays"),
    ("ey", "eys"),
    ("oy", "oys"),
    ("quy", "quies"),
    ("uy", "uys"),
    ("y", "ies"),
    ("eau", "eaux"),
    ("bula", "bulae"),
    ("dula", "bulae"),
    ("lula", "bulae"),
    ("nula", "bulae"),
    ("vula", "bulae"),
    ("hedron", "hedra"),
    ("ium", "ia"),
    ("seum", "seums"),
    ("eum", "ea"),
    ("oum", "oa"),
    ("stracum", "straca"),
    ("dum", "da"),
    ("elum", "ela"),
    ("ilum", "ila"),
    ("olum", "ola"),
    ("ulum", "ula"),
    ("llum", "lla"),
    ("ylum", "yla"),
    ("imum", "ima"),
    ("ernum", "erna"),
    ("gnum", "gna"),
    ("brum", "bra"),
    ("crum", "cra"),
    ("terum", "tera"),
    ("serum", "sera"),
    ("trum", "tra"),
    ("antum", "anta"),
    ("atum", "ata"),
    ("entum", "enta"),
    ("etum", "eta"),
    ("itum", "ita"),
    ("otum", "ota"),
    ("utum", "uta"),
    ("ctum", "cta"),
    ("ovum", "ova"),
    ("trix", "trices"),
    ("iasis", "iases"),
    ("mesis", "meses"),
    ("kinesis", "kineses"),
    ("resis", "reses"),
    ("gnosis", "gnoses"),
    ("opsis", "opses"),
    ("ysis", "yses"),
    ("ouse", "ouses"),
    ("lause", "lauses"),
    ("us", "uses"),
    ("ch", "ches"),
    ("io", "ios"),
    ("sh", "shes"),
    ("ss", "sses"),
    ("ez", "ezzes"),
    ("iz", "izzes"),
    ("tz", "tzes"),
    ("zz", "zzes"),
    ("ano", "anos"),
    ("lo", "los"),
    ("to", "tos"),
    ("oo", "oos"),
    ("o", "oes"),
    ("x", "xes"),
    ("S", "Ses"),
];

/// Sorted. flect's table also contains words with lower-case letters (`gbps`), which its look-up never finds.
#[rustfmt::skip]
const ACRONYMS: &[&str] = &[
    "ACK", "ACL", "ADSL", "AES", "ANSI", "API", "ARP", "ATM", "BGP", "BSS", "CCITT", "CHAP", "CIDR",
    "CIR", "CLI", "CMOS", "CPE", "CPU", "CRC", "CRT", "CSMA", "DCE", "DEC", "DES", "DHCP", "DMI",
    "DNS", "DRAM", "DSL", "DSLAM", "DTE", "EHA", "EIA", "EIGRP", "EOF", "ESS", "FCC", "FCS", "FDDI",
    "FTP", "GBIC", "GEPOF", "HDLC", "HTML", "HTTP", "HTTPS", "IANA", "ICMP", "ID", "IDF", "IDS",
    "IEEE", "IETF", "IMAP", "IP", "IPS", "ISDN", "ISP", "JSON", "JWT", "LACP", "LAN", "LAPB",
    "LAPF", "LLC", "MAC", "MC", "MDF", "MIB", "MPLS", "MTU", "NAC", "NAT", "NBMA", "NIC", "NRZ",
    "NRZI", "NVRAM", "OK", "OSI", "OSPF", "OUI", "PAP", "PAT", "PC", "PCM", "PDU", "PIM", "POP3",
    "POTS", "PPP", "PPTP", "PTT", "PVST", "RAM", "RARP", "RCP", "RFC", "RIP", "RLL", "ROM", "RSTP",
    "RTP", "SDLC", "SFD", "SFP", "SLARP", "SLIP", "SMTP", "SNA", "SNAP", "SNMP", "SOF", "SQL",
    "SRAM", "SSH", "SSID", "STP", "SYN", "TDM", "TFTP", "TIA", "TOFU", "UDP", "URI", "URL", "USB",
    "UTF8", "UTP", "UUID", "VC", "VLAN", "VLSM", "VPN", "W3C", "WAN", "WEP", "WPA", "WWW",
];
