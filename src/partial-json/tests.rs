//! Compares this parser with `serde_json`: if `serde_json` accepts a document in any notation, this parser must return the
//! same result.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Map, Value, json};

use super::*;
use property::Wanted;

#[path = "../../fuzz/properties/partial_json.rs"]
mod property;

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Unread> {
    from_str(text, 1000)
}

/// Generates difficult strings: quotes, escapes and brackets at any distance from the end of a word or block.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z/.-]{0,20}",
        "[\"\\\\{}\\[\\],: a]{0,40}",
        "[\u{1}-\u{24}é€😀\\\\\"]{0,9}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..6).prop_map(object),
        ]
    })
}

fn object(fields: BTreeMap<String, Value>) -> Value {
    Value::Object(Map::from_iter(fields))
}

/// Generates two levels of the required structure, among other fields.
fn document() -> impl Strategy<Value = Value> {
    (level(), level(), any::<bool>()).prop_map(|(mut top, below, misfit)| {
        top["below"] = if misfit { json!([]) } else { below };
        top
    })
}

fn level() -> impl Strategy<Value = Value> {
    let text = prop::option::of(text());
    let texts = prop::collection::vec(self::text(), 0..4);
    let map = prop::collection::btree_map("[a-z{}]{0,9}", value(), 0..4);
    let others = prop::collection::btree_map(self::text(), value(), 0..5);
    let wanted = (text, any::<Option<bool>>(), value(), value(), texts, map);
    (wanted, others).prop_map(|((text, flag, scalar, presence, texts, map), others)| {
        let mut level = json!({
            "text": text, "flag": flag, "scalar": scalar, "presence": presence, "texts": texts, "map": map,
        });
        for (name, value) in others {
            level[name] = value;
        }
        level
    })
}

/// Returns a document in a notation that no encoder uses: white space and escapes at any position.
fn written(value: &Value, spaced: bool, escaped: bool) -> String {
    let text = if spaced {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    let text = text.unwrap();
    if !escaped {
        return text;
    }
    // These letters occur only in strings, where they may be escaped, and not in literals and numbers.
    text.chars()
        .map(|letter| match letter {
            'p' | 'x' | 'é' | '😀' => {
                let mut buffer = [0; 2];
                let units = letter.encode_utf16(&mut buffer).iter();
                let units: Vec<String> = units.map(|unit| format!("\\u{unit:04x}")).collect();
                units.concat()
            }
            letter => String::from(letter),
        })
        .collect()
}

proptest! {
    #[test]
    fn reads_what_serde_json_reads(document in document(), spaced in any::<bool>(), escaped in any::<bool>()) {
        let text = written(&document, spaced, escaped);
        let expected = serde_json::from_str::<Wanted<'_>>(&text);
        prop_assert_eq!(read::<Wanted<'_>>(&text).ok(), expected.ok(), "{}", text);
    }

    #[test]
    fn a_value_ends_where_serde_json_ends_it(value in value(), spaced in any::<bool>(), behind in "[ ,}\\]\"]{0,70}") {
        let text = written(&value, spaced, false);
        let mut reader = Reader { text: &format!("{text} {behind}"), at: 0, items: 0 };
        prop_assert_eq!(reader.skip(), Ok(()));
        prop_assert_eq!(reader.at, text.len());
    }

    #[test]
    fn a_cut_document_is_refused(document in document(), at in any::<prop::sample::Index>()) {
        let text = written(&document, false, false);
        let cut = text.floor_char_boundary(at.index(text.len()));
        prop_assert_eq!(read::<Wanted<'_>>(&text[..cut]), Err(Unread));
    }

    #[test]
    fn changed_bytes_neither_panic_nor_refuse_what_is_json(
        document in document(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"\"\\{}[],: \n0at".to_vec())), 1..4),
    ) {
        let mut bytes = written(&document, false, false).into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(text) = std::str::from_utf8(&bytes)
            && let Ok(expected) = serde_json::from_str::<Wanted<'_>>(text)
        {
            prop_assert_eq!(read::<Wanted<'_>>(text), Ok(expected), "{}", text);
        }
    }
}

#[rstest]
#[case::nothing("")]
#[case::another_type("[]")]
#[case::a_comma_at_the_end(r#"{"flag":true,}"#)]
#[case::no_comma(r#"{"flag":true "text":"a"}"#)]
#[case::a_key_without_quotes(r"{flag:true}")]
#[case::no_colon(r#"{"flag" true}"#)]
#[case::something_behind(r#"{"flag":true}{}"#)]
#[case::a_literal_that_goes_on(r#"{"flag":trueish}"#)]
#[case::null_that_goes_on(r#"{"flag":nullify}"#)]
#[case::a_number_as_a_text(r#"{"text":1}"#)]
#[case::one_field_twice(r#"{"flag":true,"flag":true}"#)]
#[case::a_control_character("{\"text\":\"\n\"}")]
#[case::a_control_character_that_is_not_wanted("{\"other\":\"\n\"}")]
#[case::half_a_surrogate(r#"{"text":"\ud800"}"#)]
#[case::an_unknown_escape(r#"{"text":"\q"}"#)]
#[case::an_open_string(r#"{"other":"a\"}"#)]
#[case::an_open_container(r#"{"other":[{}"#)]
#[case::a_value_that_is_none(r#"{"other":}"#)]
fn is_refused(#[case] text: &str) {
    assert_eq!(read::<Wanted<'_>>(text), Err(Unread));
    assert!(serde_json::from_str::<Wanted<'_>>(text).is_err());
}

#[test]
fn only_the_end_is_read_of_what_is_not_wanted() {
    let text = r#"{"other":[nonsense,"\q",}],"flag":true}"#;
    assert_eq!(
        read::<Wanted<'_>>(r#"{"flag":true}"#),
        read(r#"{"other":[nonsense,"\q",],"flag":true}"#)
    );
    assert_eq!(read::<Wanted<'_>>(text), Err(Unread), "a bracket too many");
}

#[rstest]
#[case::as_many_as_allowed(r#"{"texts":["a"],"below":{"texts":["b"]}}"#, true)]
#[case::one_more(r#"{"texts":["a"],"below":{"texts":["b","c"]}}"#, false)]
#[case::not_wanted(r#"{"others":[1,2,3],"texts":["a","b"]}"#, true)]
fn items_of_wanted_lists_are_counted_together(#[case] text: &str, #[case] is_read: bool) {
    assert_eq!(from_str::<Wanted<'_>>(text, 2).is_ok(), is_read);
}

#[test]
fn a_string_without_escapes_is_borrowed() {
    let text = String::from(r#"{"é":"é"}"#);
    let map: BTreeMap<&str, &str> = read(&text).unwrap();
    assert!(text.as_bytes().as_ptr_range().contains(&map["é"].as_ptr()));
}

/// Checks the seeds of fuzzing, and inputs that fuzzing has found, against the same property.
#[rstest]
fn seeds_are_read_as_serde_json_reads_them(
    #[files("../../fuzz/seeds/partial_json/*")]
    #[mode = bytes]
    text: &[u8],
) {
    property::check(text);
}
