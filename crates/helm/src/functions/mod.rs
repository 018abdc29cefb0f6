//! Helm's template functions: sprig 3.3 as Helm 4.3.1 ships it, and Helm's own.
//!
//! Each is a plain Rust function in the module of its family; [`all`] is the only list of their names. Time,
//! randomness and cluster facts come from the [`Context`](crate::context::Context), which an execution gets as its
//! host:
//! see [`gotemplate::exec::Options::host`].

#![expect(
    clippy::needless_pass_by_value,
    reason = "template functions own their arguments: the types of their parameters are their Go signatures"
)]

mod budget;
mod case;
mod control;
mod conversions;
mod crypto;
mod data;
mod dates;
mod decimal;
mod defaults;
mod dicts;
mod durations;
mod encoding;
mod lists;
mod math;
mod merge;
mod network;
mod paths;
mod random;
mod regex;
mod strings;
mod types;
mod urls;
mod versions;

use std::sync::LazyLock;

use gotemplate::function::Functions;

use crate::line::HelmLine;

pub use control::{Refusal, TplError};

/// Maximum length of a text created by one call. Go is only limited by memory.
const MAX_TEXT: usize = 64 << 20;
/// Maximum length of a list of numbers created by one call.
const MAX_ITEMS: u64 = 10_000_000;

/// Go's panic on following a nil, mostly reflection on a missing value.
const NIL_DEREFERENCE: &str = "runtime error: invalid memory address or nil pointer dereference";

/// All functions by name. Templates must be parsed with them: an unknown name is a parse error.
pub fn all() -> &'static Functions {
    of(HelmLine::Four)
}

/// The functions of a line of Helm; those of Helm 3 are a subset of those of Helm 4.
pub fn of(helm: HelmLine) -> &'static Functions {
    static THREE: LazyLock<Functions> = LazyLock::new(|| {
        let mut functions = Functions::default();
        register(&mut functions);
        functions
    });
    static FOUR: LazyLock<Functions> = LazyLock::new(|| {
        let mut functions = THREE.clone();
        register_new(&mut functions);
        functions
    });
    match helm {
        HelmLine::Three => &THREE,
        HelmLine::Four => &FOUR,
    }
}

/// The functions that Helm 4 added.
fn register_new(f: &mut Functions) {
    f.add("mustToYaml", data::must_to_yaml);
    f.add("mustToToml", data::must_to_toml);

    f.add("mustToDuration", durations::must_to_duration);
    f.add("durationSeconds", durations::seconds);
    f.add("durationMilliseconds", durations::milliseconds);
    f.add("durationMicroseconds", durations::microseconds);
    f.add("durationNanoseconds", durations::nanoseconds);
    f.add("durationMinutes", durations::minutes);
    f.add("durationHours", durations::hours);
    f.add("durationDays", durations::days);
    f.add("durationWeeks", durations::weeks);
    f.add("durationRoundTo", durations::round_to);
    f.add("durationTruncateTo", durations::truncate_to);
}

#[expect(clippy::too_many_lines, reason = "one list, a line for each name")]
fn register(f: &mut Functions) {
    f.add("include", control::include);
    f.add("tpl", control::tpl);
    f.add("required", control::required);
    f.add("fail", control::fail);
    f.add("lookup", control::lookup);
    f.add("getHostByName", network::get_host_by_name);
    f.add("hello", || "Hello!");

    f.add("toYaml", data::to_yaml);
    f.add("fromYaml", data::from_yaml);
    f.add("fromYamlArray", data::from_yaml_array);
    f.add("toYamlPretty", data::to_yaml_pretty);
    f.add("toToml", data::to_toml);
    f.add("fromToml", data::from_toml);
    f.add("fromJson", data::from_json);
    f.add("fromJsonArray", data::from_json_array);
    f.add("mustFromJson", data::must_from_json);
    f.add("toJson", data::to_json);
    f.add("mustToJson", data::must_to_json);
    f.add("toPrettyJson", data::to_pretty_json);
    f.add("mustToPrettyJson", data::must_to_pretty_json);
    f.add("toRawJson", data::to_raw_json);
    f.add("mustToRawJson", data::to_raw_json);

    f.add("now", dates::now);
    f.add("ago", dates::ago);
    f.add("date", dates::date);
    f.add("dateInZone", dates::date_in_zone);
    f.add("date_in_zone", dates::date_in_zone);
    f.add("dateModify", dates::date_modify);
    f.add("date_modify", dates::date_modify);
    f.add("mustDateModify", dates::must_date_modify);
    f.add("must_date_modify", dates::must_date_modify);
    f.add("duration", dates::duration);
    f.add("durationRound", dates::duration_round);
    f.add("htmlDate", dates::html_date);
    f.add("htmlDateInZone", dates::html_date_in_zone);
    f.add("toDate", dates::to_date);
    f.add("mustToDate", dates::must_to_date);
    f.add("unixEpoch", dates::unix_epoch);

    f.add("abbrev", strings::abbrev);
    f.add("abbrevboth", strings::abbrevboth);
    f.add("trunc", strings::trunc);
    f.add("trim", strings::trim);
    f.add("upper", strings::upper);
    f.add("lower", strings::lower);
    f.add("title", strings::title);
    f.add("untitle", strings::untitle);
    f.add("substr", strings::substr);
    f.add("repeat", strings::repeat);
    f.add("trimall", strings::trim_all);
    f.add("trimAll", strings::trim_all);
    f.add("trimSuffix", strings::trim_suffix);
    f.add("trimPrefix", strings::trim_prefix);
    f.add("nospace", strings::nospace);
    f.add("initials", strings::initials);
    f.add("swapcase", strings::swapcase);
    f.add("shuffle", strings::shuffle);
    f.add("snakecase", case::snakecase);
    f.add("camelcase", case::camelcase);
    f.add("kebabcase", case::kebabcase);
    f.add("wrap", strings::wrap);
    f.add("wrapWith", strings::wrap_with);
    f.add("contains", strings::contains);
    f.add("hasPrefix", strings::has_prefix);
    f.add("hasSuffix", strings::has_suffix);
    f.add("quote", strings::quote);
    f.add("squote", strings::squote);
    f.add("cat", strings::cat);
    f.add("indent", strings::indent);
    f.add("nindent", strings::nindent);
    f.add("replace", strings::replace);
    f.add("plural", strings::plural);
    f.add("toString", strings::to_string);
    f.add("toStrings", strings::to_strings);
    f.add("join", strings::join);
    f.add("sortAlpha", strings::sort_alpha);
    f.add("split", strings::split);
    f.add("splitn", strings::splitn);
    f.add("splitList", strings::split_list);

    f.add("sha1sum", encoding::sha1sum);
    f.add("sha256sum", encoding::sha256sum);
    f.add("sha512sum", encoding::sha512sum);
    f.add("adler32sum", encoding::adler32sum);
    f.add("b64enc", encoding::b64enc);
    f.add("b64dec", encoding::b64dec);
    f.add("b32enc", encoding::b32enc);
    f.add("b32dec", encoding::b32dec);

    f.add("randAlphaNum", random::alpha_num);
    f.add("randAlpha", random::alpha);
    f.add("randAscii", random::ascii);
    f.add("randNumeric", random::numeric);
    f.add("randBytes", random::bytes);
    f.add("randInt", math::rand_int);
    f.add("uuidv4", random::uuid_v4);

    f.add("atoi", conversions::atoi);
    f.add("int64", conversions::int64);
    f.add("int", conversions::int);
    f.add("float64", conversions::float64);
    f.add("toDecimal", conversions::to_decimal);

    f.add("add", math::add);
    f.add("add1", math::add1);
    f.add("sub", math::sub);
    f.add("mul", math::mul);
    f.add("div", math::div);
    f.add("mod", math::modulo);
    f.add("biggest", math::max);
    f.add("max", math::max);
    f.add("min", math::min);
    f.add("addf", math::addf);
    f.add("add1f", math::add1f);
    f.add("subf", math::subf);
    f.add("mulf", math::mulf);
    f.add("divf", math::divf);
    f.add("maxf", math::maxf);
    f.add("minf", math::minf);
    f.add("ceil", math::ceil);
    f.add("floor", math::floor);
    f.add("round", math::round);
    f.add("until", math::until);
    f.add("untilStep", math::until_step);
    f.add("seq", math::seq);

    f.add("default", defaults::default);
    f.add("empty", defaults::empty);
    f.add("coalesce", defaults::coalesce);
    f.add("all", defaults::all);
    f.add("any", defaults::any);
    f.add("ternary", defaults::ternary);

    f.add("typeOf", types::type_of);
    f.add("typeIs", types::type_is);
    f.add("typeIsLike", types::type_is_like);
    f.add("kindOf", types::kind_of);
    f.add("kindIs", types::kind_is);

    f.add("base", paths::base);
    f.add("dir", paths::dir);
    f.add("clean", paths::clean);
    f.add("ext", paths::ext);
    f.add("isAbs", paths::is_abs);
    f.add("osBase", paths::base);
    f.add("osDir", paths::dir);
    f.add("osClean", paths::clean);
    f.add("osExt", paths::ext);
    f.add("osIsAbs", paths::is_abs);

    f.add("tuple", lists::list);
    f.add("list", lists::list);
    f.add("append", lists::push);
    f.add("push", lists::push);
    f.add("mustAppend", lists::push);
    f.add("mustPush", lists::push);
    f.add("prepend", lists::prepend);
    f.add("mustPrepend", lists::prepend);
    f.add("first", lists::first);
    f.add("mustFirst", lists::first);
    f.add("rest", lists::rest);
    f.add("mustRest", lists::rest);
    f.add("last", lists::last);
    f.add("mustLast", lists::last);
    f.add("initial", lists::initial);
    f.add("mustInitial", lists::initial);
    f.add("reverse", lists::reverse);
    f.add("mustReverse", lists::reverse);
    f.add("compact", lists::compact);
    f.add("mustCompact", lists::compact);
    f.add("uniq", lists::uniq);
    f.add("mustUniq", lists::uniq);
    f.add("without", lists::without);
    f.add("mustWithout", lists::without);
    f.add("has", lists::has);
    f.add("mustHas", lists::has);
    f.add("slice", lists::slice);
    f.add("mustSlice", lists::slice);
    f.add("concat", lists::concat);
    f.add("chunk", lists::chunk);
    f.add("mustChunk", lists::chunk);

    f.add("dict", dicts::dict);
    f.add("get", dicts::get);
    f.add("set", dicts::set);
    f.add("unset", dicts::unset);
    f.add("hasKey", dicts::has_key);
    f.add("pluck", dicts::pluck);
    f.add("keys", dicts::keys);
    f.add("values", dicts::values);
    f.add("pick", dicts::pick);
    f.add("omit", dicts::omit);
    f.add("merge", dicts::merge);
    f.add("mustMerge", dicts::merge);
    f.add("mergeOverwrite", dicts::merge_overwrite);
    f.add("mustMergeOverwrite", dicts::merge_overwrite);
    f.add("deepCopy", dicts::deep_copy);
    f.add("mustDeepCopy", dicts::deep_copy);
    f.add("deepEqual", dicts::deep_equal);
    f.add("dig", dicts::dig);

    f.add("regexMatch", regex::is_match);
    f.add("mustRegexMatch", regex::must_is_match);
    f.add("regexFind", regex::find);
    f.add("mustRegexFind", regex::must_find);
    f.add("regexFindAll", regex::find_all);
    f.add("mustRegexFindAll", regex::must_find_all);
    f.add("regexReplaceAll", regex::replace_all);
    f.add("mustRegexReplaceAll", regex::must_replace_all);
    f.add("regexReplaceAllLiteral", regex::replace_all_literal);
    f.add("mustRegexReplaceAllLiteral", regex::must_replace_all_literal);
    f.add("regexSplit", regex::split);
    f.add("mustRegexSplit", regex::must_split);
    f.add("regexQuoteMeta", regex::quote_meta);

    f.add("urlParse", urls::parse);
    f.add("urlJoin", urls::join);

    f.add("genPrivateKey", crypto::private_key);
    f.add("genCA", crypto::authority);
    f.add("genCAWithKey", crypto::authority_with_key);
    f.add("genSelfSignedCert", crypto::self_signed_certificate);
    f.add(
        "genSelfSignedCertWithKey",
        crypto::self_signed_certificate_with_key,
    );
    f.add("genSignedCert", crypto::signed_certificate);
    f.add("genSignedCertWithKey", crypto::signed_certificate_with_key);
    f.add("buildCustomCert", crypto::custom_certificate);
    f.add("htpasswd", crypto::htpasswd);
    f.add("bcrypt", crypto::bcrypt);
    f.add("derivePassword", crypto::derive_password);
    f.add("encryptAES", crypto::encrypt_aes);
    f.add("decryptAES", crypto::decrypt_aes);

    f.add("semver", versions::parse);
    f.add("semverCompare", versions::compare);
}
