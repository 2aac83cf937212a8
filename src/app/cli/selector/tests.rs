use std::collections::BTreeMap;

use kube::core::SelectorExt as _;
use rstest::rstest;

use super::*;

fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = text
        .split_whitespace()
        .map(|it| it.split_once('=').unwrap());
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Label sets that each operator selects and does not select.
#[rstest]
#[case::everything("", &["", "plan=aws"], &[])]
#[case::equal("plan=aws", &["plan=aws", "plan=aws a=b"], &["", "plan=gcp"])]
#[case::double_equal("plan==aws", &["plan=aws"], &["", "plan=gcp"])]
#[case::not_equal("plan!=trial", &["", "plan=aws"], &["plan=trial"])]
#[case::within("plan in (aws, gcp)", &["plan=aws", "plan=gcp"], &["", "plan=trial"])]
#[case::not_within("plan notin (aws,gcp)", &["", "plan=trial"], &["plan=aws", "plan=gcp"])]
#[case::exists("plan", &["plan=aws", "plan="], &["", "plans=aws"])]
#[case::absent("!plan", &["", "plans=aws"], &["plan=aws", "plan="])]
#[case::all_of_them("plan=aws,!trial , zone in(a)", &["plan=aws zone=a"], &["plan=aws", "plan=aws zone=a trial=1"])]
#[case::empty_value("plan=", &["plan="], &["", "plan=aws"])]
#[case::empty_value_in_a_list("plan in (,aws)", &["plan=", "plan=aws"], &["", "plan=gcp"])]
#[case::empty_value_before_a_comma("plan=,zone=a", &["plan= zone=a"], &["zone=a"])]
#[case::prefix("kyma-project.io/plan=aws", &["kyma-project.io/plan=aws"], &["plan=aws"])]
#[case::blanks("  plan  =  aws  ", &["plan=aws"], &[""])]
#[case::operators_as_keys("in in (notin),notin", &["in=notin notin=1"], &["in=notin", "notin=1"])]
#[case::upper_case("Plan_1.x=A-B", &["Plan_1.x=A-B"], &["plan_1.x=a-b"])]
fn selectors_select_as_kubernetes_does(
    #[case] text: &str,
    #[case] selected: &[&str],
    #[case] others: &[&str],
) {
    let selector = selector(text).unwrap();
    for it in selected {
        assert!(selector.matches(&labels(it)), "{text} selects {it:?}");
    }
    for it in others {
        assert!(
            !selector.matches(&labels(it)),
            "{text} does not select {it:?}"
        );
    }
}

/// The kube client writes a selector in the same grammar.
#[rstest]
#[case("plan=aws,plan!=trial")]
#[case("plan in (aws,gcp),zone notin (a)")]
#[case("plan,!trial,example.com/a=b")]
fn what_is_read_is_written_again_in_the_same_words(#[case] text: &str) {
    assert_eq!(selector(text).unwrap().to_string(), text);
}

#[rstest]
#[case::no_key("=c", SelectorError::Key(String::new()))]
#[case::trailing_comma("a=b,", SelectorError::Key(String::new()))]
#[case::leading_comma(",a", SelectorError::Key(String::new()))]
#[case::key_syntax("-a=b", SelectorError::Key("-a".to_owned()))]
#[case::empty_prefix("/a", SelectorError::Key("/a".to_owned()))]
#[case::upper_case_prefix("Example.com/a", SelectorError::Key("Example.com/a".to_owned()))]
#[case::two_prefixes("a/b/c", SelectorError::Key("a/b/c".to_owned()))]
#[case::not_nothing("!", SelectorError::Key(String::new()))]
#[case::value_syntax("a=b_", SelectorError::Value("b_".to_owned()))]
#[case::value_with_a_slash("a=b/c", SelectorError::Value("b/c".to_owned()))]
#[case::value_in_a_list("a in (b,?)", SelectorError::Value("?".to_owned()))]
#[case::value_of_a_value("a=b=c", SelectorError::End("=c".to_owned()))]
#[case::equal_to_not("a=!b", SelectorError::End("!b".to_owned()))]
#[case::absent_with_a_value("!a=b", SelectorError::End("=b".to_owned()))]
#[case::two_words("a b", SelectorError::Operator("b".to_owned(), "a".to_owned()))]
#[case::blank_in_a_key("a b=c", SelectorError::Operator("b=c".to_owned(), "a".to_owned()))]
#[case::split_operator("a ! = b", SelectorError::Operator("! = b".to_owned(), "a".to_owned()))]
#[case::greater("a>3", SelectorError::Operator(">3".to_owned(), "a".to_owned()))]
#[case::no_list("a in b", SelectorError::List)]
#[case::empty_list("a in ()", SelectorError::List)]
#[case::open_list("a notin (b", SelectorError::List)]
#[case::behind_a_list("a in (b)=x", SelectorError::End("=x".to_owned()))]
fn what_kubernetes_refuses_is_refused(#[case] text: &str, #[case] expected: SelectorError) {
    assert_eq!(selector(text), Err(expected));
}

#[test]
fn names_and_values_have_at_most_63_characters() {
    let (longest, longer) = ("a".repeat(63), "a".repeat(64));
    assert!(selector(&format!("{longest}={longest}")).is_ok());
    assert!(selector(&longer).is_err());
    assert!(selector(&format!("a={longer}")).is_err());
}
