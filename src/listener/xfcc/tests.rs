//! Tests of the grammar of Envoy: valid headers, invalid headers, and random texts.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

mod client_certificate;
#[path = "../../../fuzz/properties/xfcc.rs"]
mod property;

/// Returns a header as Envoy writes it, with each value quoted.
fn print(elements: &[Vec<(String, String)>]) -> String {
    let pair = |(key, value): &(String, String)| {
        let value = value.replace('\\', r"\\").replace('"', r#"\""#);
        format!(r#"{key}="{value}""#)
    };
    let element = |pairs: &Vec<_>| pairs.iter().map(pair).collect::<Vec<_>>().join(";");
    elements.iter().map(element).collect::<Vec<_>>().join(",")
}

fn read(text: &str) -> Vec<Vec<(String, String)>> {
    let owned = |(key, value): (&str, Cow<'_, str>)| (key.to_owned(), value.into_owned());
    let pairs = |element: Element<'_>| element.pairs.into_iter().map(owned).collect();
    parse(text).unwrap().into_iter().map(pairs).collect()
}

/// Examples from the documentation of the header in Envoy, and subjects of a mesh.
#[rstest]
#[case::sanitized(
    r#"Hash=468e;Subject="/C=US/ST=CA/CN=Test Client";URI=spiffe://lyft.com/frontend"#,
    vec![vec![("Hash", "468e"), ("Subject", "/C=US/ST=CA/CN=Test Client"), ("URI", "spiffe://lyft.com/frontend")]],
)]
#[case::two_hops(
    "By=http://a;Hash=1;URI=spiffe://b,By=spiffe://c;Hash=2;URI=http://d",
    vec![
        vec![("By", "http://a"), ("Hash", "1"), ("URI", "spiffe://b")],
        vec![("By", "spiffe://c"), ("Hash", "2"), ("URI", "http://d")],
    ],
)]
#[case::separators_in_quotes(r#"Subject="CN=a,O=b;c=d",URI=e"#, vec![vec![("Subject", "CN=a,O=b;c=d")], vec![("URI", "e")]])]
#[case::a_key_in_quotes(r#"Subject="O=x;Cert=y";Cert="z""#, vec![vec![("Subject", "O=x;Cert=y"), ("Cert", "z")]])]
#[case::a_quote_in_quotes(r#"Subject="CN=\"a\"""#, vec![vec![("Subject", r#"CN="a""#)]])]
#[case::an_escaped_comma_of_rfc_2253(r#"Subject="CN=a\,b""#, vec![vec![("Subject", r"CN=a\,b")]])]
#[case::a_backslash_at_the_end(r#"Subject="CN=a\\";URI=b"#, vec![vec![("Subject", r"CN=a\"), ("URI", "b")]])]
#[case::empty_values(r#"Subject="";URI=;Hash=1"#, vec![vec![("Subject", ""), ("URI", ""), ("Hash", "1")]])]
#[case::equals_in_a_bare_uri("URI=spiffe://a?b=c", vec![vec![("URI", "spiffe://a?b=c")]])]
#[case::blanks_where_lists_are_joined("Hash=1 , Hash=2\t", vec![vec![("Hash", "1")], vec![("Hash", "2")]])]
#[case::blanks_behind_quotes(r#"Subject="a" , Hash=2"#, vec![vec![("Subject", "a")], vec![("Hash", "2")]])]
fn what_envoy_writes_is_read(#[case] text: &str, #[case] expected: Vec<Vec<(&str, &str)>>) {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let expected = expected
        .into_iter()
        .map(|pairs| pairs.into_iter().map(owned).collect());
    assert_eq!(read(text), expected.collect::<Vec<Vec<_>>>());
}

#[rstest]
#[case::nothing("", GrammarError("pair without '='"))]
#[case::no_pair("Cert", GrammarError("pair without '='"))]
#[case::an_empty_element("Hash=1,", GrammarError("pair without '='"))]
#[case::an_empty_element_before(",Hash=1", GrammarError("key: not a word"))]
#[case::an_empty_pair("Hash=1;;URI=2", GrammarError("key: not a word"))]
#[case::no_key("=1", GrammarError("key: not a word"))]
#[case::a_key_of_two_words("My Cert=1", GrammarError("key: not a word"))]
#[case::a_quoted_key(r#""Cert"=1"#, GrammarError("key: not a word"))]
#[case::a_quote_within_a_bare_value(
    r#"Cert=a"b""#,
    GrammarError("unquoted value contains a quote")
)]
#[case::a_quote_behind_a_blank(r#"Cert= "b""#, GrammarError("unquoted value contains a quote"))]
#[case::an_open_quote(r#"Cert="abc"#, GrammarError("quoted value without end"))]
#[case::a_guarded_closing_quote(r#"Cert="abc\""#, GrammarError("quoted value without end"))]
#[case::a_backslash_at_the_very_end(r#"Cert="abc\"#, GrammarError("quoted value without end"))]
#[case::text_behind_a_quote(r#"Cert="a"b"#, GrammarError("text after a quoted value"))]
fn what_has_two_readings_is_refused(#[case] text: &str, #[case] expected: GrammarError) {
    assert_eq!(parse(text).unwrap_err(), expected);
}

/// The documentation of Envoy states "Keys are case-insensitive".
#[test]
fn keys_have_any_letter_case() {
    let elements = parse("cert=1;CERT=2;Hash=3").unwrap();
    assert_eq!(elements[0].values("Cert").collect::<Vec<_>>(), ["1", "2"]);
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("[A-Za-z0-9]{1,8}", any::<String>()), 1..4)
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(elements in prop::collection::vec(pairs(), 1..4)) {
        prop_assert_eq!(read(&print(&elements)), elements);
    }

    #[test]
    fn no_text_makes_it_fail_badly(text in any::<String>()) {
        let _ = parse(&text);
    }

    /// The texts contain mainly separators, so that most of them are processed by large parts of the parser.
    #[test]
    fn what_is_read_says_the_same_when_printed(text in r#"([a-c]=|[a-c"\\;,= é]){0,24}"#) {
        if parse(&text).is_ok() {
            let first = read(&text);
            prop_assert_eq!(read(&print(&first)), first);
        }
    }

    /// Any subject stays in its quotes, so that the certificate of the client is in its place.
    #[test]
    fn a_subject_forges_no_key(subject in any::<String>()) {
        let written = vec![vec![
            ("Subject".to_owned(), subject),
            ("Cert".to_owned(), "real".to_owned()),
        ]];
        let header = print(&written);
        let elements = parse(&header).unwrap();
        prop_assert_eq!(elements.len(), 1);
        prop_assert_eq!(elements[0].values("cert").collect::<Vec<_>>(), ["real"]);
    }
}

/// Checks the seeds of fuzzing, and inputs that fuzzing has found, against the same property.
#[rstest]
fn a_header_has_one_reading_or_none(
    #[files("../../fuzz/seeds/xfcc/*")]
    #[mode = bytes]
    header: &[u8],
) {
    property::check(header);
}
