//! Tests of texts that are not image references, and of the errors.

use rstest::rstest;

use crate::image::{Reference, ReferenceError};

use ReferenceError::{
    Digest, DigestAlgorithm, Domain, Empty, Identifier, Path, Tag, TooLong, UppercasePath,
};

const HEX64: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[rstest]
#[case::empty("", Empty)]
#[case::identifier(HEX64, Identifier)]
// Repository.
#[case::slash("/", Path)]
#[case::slashes("//", Path)]
#[case::leading_slash("/foo", Path)]
#[case::leading_slash_path("/foo/bar", Path)]
#[case::trailing_slash("foo/", Path)]
#[case::trailing_slash_deeper("foo/bar/", Path)]
#[case::trailing_slash_hub("docker.io/", Path)]
#[case::trailing_slash_host("example.com/", Path)]
#[case::trailing_slash_then_tag("foo/:tag", Path)]
#[case::double_slash("foo//bar", Path)]
#[case::double_slash_host("example.com//bar", Path)]
#[case::scheme_like("a///b", Path)]
#[case::just_tag(":justtag", Path)]
#[case::just_digest(
    "@sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    Path
)]
#[case::colon(":", Path)]
#[case::at("@", Path)]
#[case::space(" ", Path)]
#[case::leading_space(" nginx", Path)]
#[case::trailing_space("nginx ", Path)]
#[case::inner_space("ng inx", Path)]
#[case::space_in_second("foo/ bar", Path)]
#[case::tab("\tnginx", Path)]
#[case::line_end("nginx\n", Path)]
#[case::carriage_return("nginx\r\n", Path)]
#[case::nul("nginx\0", Path)]
#[case::only_nul("\0", Path)]
#[case::escape("ng\u{1b}inx", Path)]
#[case::delete("nginx\u{7f}", Path)]
#[case::zero_width("nginx\u{200b}", Path)]
#[case::no_break_space("nginx\u{a0}", Path)]
#[case::byte_order_mark("\u{feff}nginx", Path)]
#[case::cyrillic_a("ngіnx", Path)]
#[case::full_width_digit("nginx１", Path)]
#[case::full_width_slash("foo／bar", Path)]
#[case::snowman("☃/foo", Path)]
#[case::underscores3("foo___bar", Path)]
#[case::underscores4("foo____bar", Path)]
#[case::underscores3_deeper("a/foo___bar", Path)]
#[case::dots("foo..bar", Path)]
#[case::dots_deeper("foo/bar..baz", Path)]
#[case::dot_underscore("foo._bar", Path)]
#[case::underscore_dot("foo_.bar", Path)]
#[case::dash_dot("foo-.bar", Path)]
#[case::dot_dash("foo.-bar", Path)]
#[case::dash_underscore("foo-_bar", Path)]
#[case::underscore_dash("foo_-bar", Path)]
#[case::underscores_dash("foo__-bar", Path)]
#[case::leading_dash("-foo", Path)]
#[case::leading_dash_namespace("-foo/bar", Path)]
#[case::leading_dash_second("foo/-bar", Path)]
#[case::leading_underscore("_foo", Path)]
#[case::leading_underscores("__foo", Path)]
#[case::leading_dot(".foo", Path)]
#[case::leading_dot_second("foo/.bar", Path)]
#[case::trailing_dash("foo-", Path)]
#[case::trailing_dash_namespace("foo-/bar", Path)]
#[case::trailing_underscore("foo_", Path)]
#[case::trailing_underscores("foo__/bar", Path)]
#[case::trailing_dot("foo.", Path)]
#[case::trailing_dot_second("foo/bar.", Path)]
#[case::trailing_dash_then_tag("foo-:1", Path)]
#[case::special("aa/asdf$$^/aa", Path)]
#[case::plus("c++", Path)]
#[case::tilde("~foo/bar", Path)]
#[case::percent("foo%2fbar", Path)]
#[case::query("foo?x=1", Path)]
#[case::fragment("foo#bar", Path)]
#[case::backslash("foo\\bar", Path)]
#[case::quote("\"nginx\"", Path)]
#[case::braces("${IMAGE}", UppercasePath)]
#[case::template("{{ .image }}", Path)]
#[case::bracketed_without_colon("[a]/foo", Path)]
#[case::upper("Nginx", UppercasePath)]
#[case::upper_all("NGINX", UppercasePath)]
#[case::upper_inside("ngiNx", UppercasePath)]
#[case::upper_with_tag("Uppercase:tag", UppercasePath)]
#[case::upper_with_digest(
    "Nginx@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    UppercasePath
)]
#[case::upper_second("test/Uppercase/lower:tag", UppercasePath)]
#[case::upper_behind_host("test:5000/Uppercase/lower:tag", UppercasePath)]
#[case::upper_behind_hub("docker.io/Foo", UppercasePath)]
#[case::upper_behind_upper("FOO/BAR", UppercasePath)]
#[case::upper_hex_identifier(
    "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
    UppercasePath
)]
// Registry.
#[case::tag_with_slash("foo:a/b", Domain)]
#[case::scheme("https://docker.io/nginx", Domain)]
#[case::oci_scheme("oci://docker.io/nginx", Domain)]
#[case::docker_scheme("docker://nginx", Domain)]
#[case::digest_with_slash(
    "foo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/x",
    Domain
)]
#[case::no_port("foo:/bar", Domain)]
#[case::no_host(":5000/bar", Domain)]
#[case::port_text("foo:http/bar", Domain)]
#[case::port_mixed("foo:50a0/bar", Domain)]
#[case::port_negative("foo:-1/bar", Domain)]
#[case::port_twice("foo:1:2/bar", Domain)]
#[case::port_digits_elsewhere("foo:１/bar", Domain)]
#[case::user("user@example.com/foo", Domain)]
#[case::user_password("user:pw@example.com/foo", Domain)]
#[case::host_leading_dash("-foo.com/bar", Domain)]
#[case::host_trailing_dash("foo.com-/bar", Domain)]
#[case::label_trailing_dash("foo-.com/bar", Domain)]
#[case::label_leading_dash("foo.-com/bar", Domain)]
#[case::host_empty_label("foo..com/bar", Domain)]
#[case::host_leading_dot(".com/bar", Domain)]
#[case::host_trailing_dot("foo.com./bar", Domain)]
#[case::host_dot("./bar", Domain)]
#[case::host_dots("../bar", Domain)]
#[case::host_underscore_port("foo_bar:5000/x", Domain)]
#[case::host_underscore_upper("FOO_bar/x", Domain)]
#[case::host_underscores3("a___b.com/x", Domain)]
#[case::host_unicode("☃.com/foo", Domain)]
#[case::host_space("exa mple.com/foo", Domain)]
#[case::host_nul("example.com\0/foo", Domain)]
#[case::host_wildcard("*.example.com/foo", Domain)]
#[case::ipv6_bare("::1/foo", Domain)]
#[case::ipv6_bare_port("2001:db8::1:5000/foo", Domain)]
#[case::ipv6_zone("[fe80::1%eth0]/foo", Domain)]
#[case::ipv6_zone_escaped("[fe80::1%25eth0]:5000/foo", Domain)]
#[case::ipv6_mapped("[::ffff:1.2.3.4]/foo", Domain)]
#[case::ipv6_open("[::1/foo", Domain)]
#[case::ipv6_close("::1]/foo", Domain)]
#[case::ipv6_empty_port("[::1]:/foo", Domain)]
#[case::ipv6_port_text("[::1]:a/foo", Domain)]
#[case::ipv6_tail("[::1]5000/foo", Domain)]
#[case::ipv6_twice("[[::1]]/foo", Domain)]
#[case::ipv6_empty("[]:5000/foo", Domain)]
#[case::ipv6_letters("[fooo::]/foo", Domain)]
#[case::ipv6_suffixed("[::1].com/foo", Domain)]
#[case::ipv6_prefixed("a[::1]/foo", Domain)]
// An address alone has no repository after it, so the brackets belong to the repository.
#[case::ipv6_alone("[::1]", Path)]
// Tag.
#[case::tag_empty("foo:", Tag)]
#[case::tag_empty_deeper("a/foo:", Tag)]
#[case::tag_empty_digest(
    "foo:@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Tag
)]
#[case::tag_dash("foo:-a", Tag)]
#[case::tag_dot("foo:.a", Tag)]
#[case::tag_plus("foo:1.0+build", Tag)]
#[case::tag_space("foo: 1", Tag)]
#[case::tag_line_end("foo:1\n", Tag)]
#[case::tag_nul("foo:1\0", Tag)]
#[case::tag_twice("foo:1:2", Tag)]
#[case::host_port_tag("host:5000:tag", Tag)]
#[case::tag_cyrillic("busybox:тег", Tag)]
#[case::tag_cyrillic_tail("busybox:1т", Tag)]
#[case::tag_umlaut("busybox:ü", Tag)]
#[case::tag_other_digit("busybox:٣", Tag)]
#[case::tag_slash_late("foo/bar:a/b", Tag)]
#[case::tag_variable("foo:${TAG}", Tag)]
#[case::tag_escape("foo:1\u{1b}[0m", Tag)]
// Digest.
#[case::digest_empty("foo@", Digest)]
#[case::digest_empty_tagged("foo:1@", Digest)]
#[case::digest_no_value("foo@sha256:", Digest)]
#[case::digest_no_algorithm(
    "foo@:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Digest
)]
#[case::digest_bare(
    "foo@e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Digest
)]
#[case::digest_short(
    "foo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
    Digest
)]
#[case::digest_long(
    "foo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8550",
    Digest
)]
#[case::digest_32("foo@sha256:e3b0c44298fc1c149afbf4c8996fb924", Digest)]
#[case::digest_upper(
    "foo@sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
    Digest
)]
#[case::digest_no_hex(
    "foo@sha256:g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Digest
)]
#[case::digest_tail(
    "foo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 ",
    Digest
)]
#[case::digest_then_tag(
    "foo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855:1",
    Digest
)]
#[case::digest_twice(
    "foo@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Digest
)]
#[case::sha384_of_256(
    "foo@sha384:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Digest
)]
#[case::sha512_of_256(
    "foo@sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Digest
)]
#[case::unknown_short("foo@md5:d41d8cd98f00b204e9800998ecf8427", Digest)]
#[case::unknown_no_hex("foo@md5:g41d8cd98f00b204e9800998ecf8427e", Digest)]
#[case::algorithm_digit("foo@5md:d41d8cd98f00b204e9800998ecf8427e", Digest)]
#[case::algorithm_separators("foo@sha256++b64:d41d8cd98f00b204e9800998ecf8427e", Digest)]
#[case::algorithm_trailing("foo@sha256+:d41d8cd98f00b204e9800998ecf8427e", Digest)]
#[case::unknown("foo@md5:d41d8cd98f00b204e9800998ecf8427e", DigestAlgorithm)]
#[case::unknown_word(
    "validname@invaliddigest:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    DigestAlgorithm
)]
#[case::compound("foo@sha256+b64:d41d8cd98f00b204e9800998ecf8427e", DigestAlgorithm)]
#[case::compound_all(
    "foo@tarsum.v1-dev_x+sha256:d41d8cd98f00b204e9800998ecf8427e",
    DigestAlgorithm
)]
#[case::blake3(
    "foo@blake3:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    DigestAlgorithm
)]
#[case::algorithm_upper(
    "foo@SHA256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    DigestAlgorithm
)]
fn refused(#[case] text: &str, #[case] error: ReferenceError) {
    assert_eq!(Reference::parse(text), Err(error), "{text:?}");
}

#[rstest]
#[case::tag(format!("nginx:{}", "t".repeat(129)), Tag)]
#[case::tag_huge(format!("nginx:{}", "t".repeat(1 << 20)), Tag)]
#[case::repository(format!("h.io/{}", "r".repeat(256)), TooLong)]
#[case::repository_deep(format!("h.io/{}", vec!["r"; 129].join("/")), TooLong)]
#[case::repository_huge("r".repeat(1 << 20), TooLong)]
fn too_long(#[case] text: String, #[case] error: ReferenceError) {
    assert_eq!(Reference::parse(&text), Err(error));
}

#[rstest]
fn every_reason_reads_as_its_own(
    #[values(
        Empty,
        Identifier,
        Domain,
        UppercasePath,
        Path,
        TooLong,
        Tag,
        Digest,
        DigestAlgorithm
    )]
    error: ReferenceError,
) {
    let text = error.to_string();
    assert!(text.starts_with("the ") || error == Identifier, "{text}");
    assert!(!text.ends_with('.'), "{text}");
}
