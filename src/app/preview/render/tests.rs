use rstest::rstest;
use testkit::growth::assert_proportional;

use super::Palette;

#[rstest]
#[case::file("--- a", Palette::colours().heading)]
#[case::hunk("@@ -1 +1 @@", Palette::colours().hunk)]
#[case::added("+a", Palette::colours().added)]
#[case::removed("-a", Palette::colours().removed)]
#[case::same(" -a", anstyle::Style::new())]
fn a_line_of_a_diff_has_its_colour(#[case] line: &str, #[case] style: anstyle::Style) {
    assert_eq!(Palette::colours().of_line(line), style);
}

#[rstest]
#[case::terminal(true, &[("TERM", "xterm")], true)]
#[case::terminal_that_says_nothing(true, &[], true)]
#[case::pipe(false, &[("TERM", "xterm")], false)]
#[case::refused(true, &[("TERM", "xterm"), ("NO_COLOR", "1")], false)]
#[case::refused_by_nothing(true, &[("NO_COLOR", "")], true)]
#[case::dumb(true, &[("TERM", "dumb")], false)]
fn colours_are_for_people(
    #[case] is_terminal: bool,
    #[case] variables: &[(&str, &str)],
    #[case] coloured: bool,
) {
    let variable = |name: &str| {
        let found = variables.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.into())
    };
    let expected = if coloured {
        Palette::colours()
    } else {
        Palette::default()
    };
    assert_eq!(Palette::of(is_terminal, variable), expected);
}

#[test]
fn colours_end_where_their_line_ends() {
    let mut out = String::new();
    super::line(&mut out, Palette::colours().added, "+a");
    assert_eq!(out, "\u{1b}[32m+a\u{1b}[0m\n");
}

#[rstest]
#[case(0, "0 Pods")]
#[case(1, "1 Pod")]
#[case(2, "2 Pods")]
fn nouns_are_counted(#[case] count: usize, #[case] text: &str) {
    assert_eq!(super::counted(count, "Pod"), text);
}

/// The diff of 1600 containers is far from its time limit, also on a slow machine: beyond it, its lines are others.
#[test]
fn diff_takes_time_in_proportion_to_the_pod() {
    let text = |count: usize, registry: &str| {
        let containers = (0..count).map(|it| format!("- image: {registry}/x:1\n  name: c{it}\n"));
        containers.collect::<Vec<_>>().concat()
    };
    let texts = |count| (count, text(count, "replace.me"), text(count, "ghcr.io"));
    assert_proportional(100, texts, |(count, before, after)| {
        let diff = super::unified("p", before, after);
        assert_eq!(diff.matches("\n+").count(), count + 1);
    });
}
