//! Tests of valid image references, and of the meaning of their components.

use rstest::rstest;

use crate::image::Reference;

/// Digests of arbitrary content with the correct length.
const SHA256: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SHA384: &str = "sha384:38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b";
const SHA512: &str = "sha512:cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e";

fn parse(text: &str) -> Reference<'_> {
    Reference::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[rstest]
// Short names of Docker Hub.
#[case("a", "docker.io", "library/a")]
#[case("0", "docker.io", "library/0")]
#[case("nginx", "docker.io", "library/nginx")]
#[case("hello-world", "docker.io", "library/hello-world")]
#[case("foo.bar", "docker.io", "library/foo.bar")]
#[case("foo_bar", "docker.io", "library/foo_bar")]
#[case("foo__bar", "docker.io", "library/foo__bar")]
#[case("foo--bar", "docker.io", "library/foo--bar")]
#[case("foo---------bar", "docker.io", "library/foo---------bar")]
#[case("a-b_c.d__e", "docker.io", "library/a-b_c.d__e")]
#[case("docker.io", "docker.io", "library/docker.io")]
#[case("index.docker.io", "docker.io", "library/index.docker.io")]
#[case("localhost", "docker.io", "library/localhost")]
#[case("test.com", "docker.io", "library/test.com")]
#[case("127.0.0.1", "docker.io", "library/127.0.0.1")]
#[case("xn--n3h.com", "docker.io", "library/xn--n3h.com")]
#[case("library", "docker.io", "library/library")]
// Namespaces of Docker Hub: no dot, no port, no upper-case letter before the first slash.
#[case("bitnami/redis", "docker.io", "bitnami/redis")]
#[case("library/nginx", "docker.io", "library/nginx")]
#[case("foo_bar/baz", "docker.io", "foo_bar/baz")]
#[case("foo--bar/baz", "docker.io", "foo--bar/baz")]
#[case("foo__bar/baz", "docker.io", "foo__bar/baz")]
#[case("foo/bar/baz", "docker.io", "foo/bar/baz")]
#[case("a/a/a/a/a/a/a/a", "docker.io", "a/a/a/a/a/a/a/a")]
#[case("foo/foo_bar.com", "docker.io", "foo/foo_bar.com")]
#[case("foo/docker.io/bar", "docker.io", "foo/docker.io/bar")]
#[case("localhost1/foo", "docker.io", "localhost1/foo")]
#[case("mylocalhost/foo", "docker.io", "mylocalhost/foo")]
#[case("1234/foo", "docker.io", "1234/foo")]
// 63 and 65 hexadecimal digits are valid names, 64 are not. After a namespace, 64 digits are valid, too.
#[case(
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
    "docker.io",
    "library/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85"
)]
#[case(
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8550",
    "docker.io",
    "library/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8550"
)]
#[case(
    "x/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "docker.io",
    "x/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)]
#[case(
    "g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "docker.io",
    "library/g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)]
// Docker Hub with its names.
#[case("docker.io/bash", "docker.io", "library/bash")]
#[case("docker.io/library/bash", "docker.io", "library/bash")]
#[case("docker.io/bitnami/redis", "docker.io", "bitnami/redis")]
#[case("docker.io/a/b/c", "docker.io", "a/b/c")]
#[case("docker.io/docker.io", "docker.io", "library/docker.io")]
#[case("docker.io/localhost/x", "docker.io", "localhost/x")]
#[case("index.docker.io/bash", "docker.io", "library/bash")]
#[case("index.docker.io/library/bash", "docker.io", "library/bash")]
#[case("index.docker.io/bitnami/redis", "docker.io", "bitnami/redis")]
// Hosts that are similar to Docker Hub: other hosts for the grammar, without `library/`.
#[case("registry-1.docker.io/bash", "registry-1.docker.io", "bash")]
#[case("docker.io:443/bash", "docker.io:443", "bash")]
#[case("index.docker.io:443/bash", "index.docker.io:443", "bash")]
#[case("Docker.io/bash", "Docker.io", "bash")]
#[case("Index.docker.io/bash", "Index.docker.io", "bash")]
#[case("xdocker.io/bash", "xdocker.io", "bash")]
#[case("docker.io.example.com/bash", "docker.io.example.com", "bash")]
// Other hosts.
#[case("localhost/foo", "localhost", "foo")]
#[case("localhost:5000/foo", "localhost:5000", "foo")]
#[case("localhost/foo/bar", "localhost", "foo/bar")]
#[case("LOCALHOST/foo", "LOCALHOST", "foo")]
#[case("FOO/bar", "FOO", "bar")]
#[case("Foo/bar", "Foo", "bar")]
#[case("fOO-b/bar", "fOO-b", "bar")]
#[case("FOO:5000/bar", "FOO:5000", "bar")]
#[case("host:5000/foo", "host:5000", "foo")]
#[case("host:5000/foo/bar", "host:5000", "foo/bar")]
#[case("host:0/foo", "host:0", "foo")]
#[case("host:99999999/foo", "host:99999999", "foo")]
#[case("1:1/1", "1:1", "1")]
#[case("gcr.io/foo", "gcr.io", "foo")]
#[case("quay.io/coreos/etcd", "quay.io", "coreos/etcd")]
#[case("test.com/library/nginx", "test.com", "library/nginx")]
#[case("sub-dom1.foo.com/bar/baz/quux", "sub-dom1.foo.com", "bar/baz/quux")]
#[case(
    "b.gcr.io/test.example.com/my-app",
    "b.gcr.io",
    "test.example.com/my-app"
)]
#[case("xn--n3h.com/myimage", "xn--n3h.com", "myimage")]
#[case("XN--n3h.com/myimage", "XN--n3h.com", "myimage")]
#[case("xn--7o8h.com:5000/my_image", "xn--7o8h.com:5000", "my_image")]
#[case("a.b/c", "a.b", "c")]
#[case("1.2.3.4/x", "1.2.3.4", "x")]
#[case("127.0.0.1:5000/library/alpine", "127.0.0.1:5000", "library/alpine")]
#[case("999.999.999.999/x", "999.999.999.999", "x")]
#[case("a--b.example/x", "a--b.example", "x")]
#[case(
    "europe-docker.pkg.dev/kyma-project/prod/x",
    "europe-docker.pkg.dev",
    "kyma-project/prod/x"
)]
#[case(
    "123456789012.dkr.ecr.eu-central-1.amazonaws.com/a/b",
    "123456789012.dkr.ecr.eu-central-1.amazonaws.com",
    "a/b"
)]
#[case(
    "registry.local:5000/docker.io/library/nginx",
    "registry.local:5000",
    "docker.io/library/nginx"
)]
// Addresses in brackets: any digits and colons, as in the grammar.
#[case("[::1]/foo", "[::1]", "foo")]
#[case("[::1]:5000/foo", "[::1]:5000", "foo")]
#[case("[2001:db8::1]/repo", "[2001:db8::1]", "repo")]
#[case(
    "[2001:DB8:0:0:0:0:0:1]:80/repo/x",
    "[2001:DB8:0:0:0:0:0:1]:80",
    "repo/x"
)]
#[case("[2001:db8:3:4:5:6:7:8:9]/repo", "[2001:db8:3:4:5:6:7:8:9]", "repo")]
#[case("[::]/a", "[::]", "a")]
#[case("[:]/a", "[:]", "a")]
#[case("[A]/a", "[A]", "a")]
// By the grammar the texts have no host, but a repository whose first component contains a dot. The runtime pulls
// from that component.
#[case("my_registry.corp/app", "my_registry.corp", "app")]
#[case("my__registry.corp/a/b", "my__registry.corp", "a/b")]
fn names(#[case] text: &str, #[case] domain: &str, #[case] full_path: &str) {
    for suffix in ["", ":1.2", ":1.2@", "@"] {
        let digest = if suffix.ends_with('@') { SHA256 } else { "" };
        let text = [text, suffix, digest].concat();
        let reference = parse(&text);
        assert_eq!(reference.domain(), domain);
        assert_eq!(reference.full_path(), full_path);
        assert_eq!(reference.tag(), suffix.starts_with(':').then_some("1.2"));
        assert_eq!(reference.digest(), suffix.ends_with('@').then_some(SHA256));
        assert_eq!(reference.suffix(), [suffix, digest].concat());
    }
}

#[rstest]
#[case("nginx", None, "nginx")]
#[case("bitnami/redis:7", None, "bitnami/redis")]
#[case("docker.io:7", None, "docker.io")]
#[case("docker.io/bash", Some("docker.io"), "bash")]
#[case("docker.io/library/bash", Some("docker.io"), "library/bash")]
#[case("index.docker.io/bash:5", Some("index.docker.io"), "bash")]
#[case(
    "index.docker.io/library/bash",
    Some("index.docker.io"),
    "library/bash"
)]
#[case("localhost/a", Some("localhost"), "a")]
#[case("localhost:5000", None, "localhost")]
#[case("h:1/a/b:2", Some("h:1"), "a/b")]
#[case("[::1]:1/a:2", Some("[::1]:1"), "a")]
#[case("FOO/a", Some("FOO"), "a")]
#[case("my_registry.corp/a", Some("my_registry.corp"), "a")]
fn nothing_implied_is_written(
    #[case] text: &str,
    #[case] domain: Option<&str>,
    #[case] path: &str,
) {
    let reference = parse(text);
    assert_eq!(reference.written_domain(), domain);
    assert_eq!(reference.path(), path);
}

#[rstest]
#[case(":latest", "latest")]
#[case(":a", "a")]
#[case(":0", "0")]
#[case(":_", "_")]
#[case(":__", "__")]
#[case(":_.-", "_.-")]
#[case(":A", "A")]
#[case(":5000", "5000")]
#[case(":15.3", "15.3")]
#[case(":v1.2.3-rc.1_build", "v1.2.3-rc.1_build")]
#[case(":Uppercase", "Uppercase")]
#[case(":xn--n3h.com", "xn--n3h.com")]
#[case(":1..2", "1..2")]
#[case(":1--", "1--")]
#[case(
    ":e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)]
fn tags(
    #[case] suffix: &str,
    #[case] tag: &str,
    #[values("nginx", "a/b", "h:5000/a", "[::1]/a", "sha256")] name: &str,
    #[values("", SHA256, SHA384, SHA512)] digest: &str,
) {
    let at = if digest.is_empty() { "" } else { "@" };
    let text = [name, suffix, at, digest].concat();
    let reference = parse(&text);
    assert_eq!(reference.tag(), Some(tag));
    assert_eq!(
        reference.digest(),
        Some(digest).filter(|digest| !digest.is_empty())
    );
}

#[rstest]
#[case::sha256(SHA256)]
#[case::sha384(SHA384)]
#[case::sha512(SHA512)]
fn digests(#[case] digest: &str, #[values("nginx", "a/b", "h:5000/a", "[::1]/a")] name: &str) {
    let text = [name, "@", digest].concat();
    let reference = parse(&text);
    assert_eq!(reference.digest(), Some(digest));
    assert_eq!(reference.tag(), None);
    assert_eq!(reference.suffix(), format!("@{digest}"));
}

#[test]
fn a_tag_may_have_128_bytes() {
    let tag = "t".repeat(128);
    assert_eq!(parse(&format!("nginx:{tag}")).tag(), Some(tag.as_str()));
}

/// The limit applies to the repository: a registry before it does not count, an implied `library/` does.
#[rstest]
#[case::hub(247, "")]
#[case::hub_written(247, "docker.io/")]
#[case::namespace(251, "lib/")]
#[case::registry(255, "registry.example.com:5000/")]
#[case::underscored(255 - "my_registry.corp/".len(), "my_registry.corp/")]
fn the_longest_repository(#[case] length: usize, #[case] before: &str) {
    let text = [before, &"r".repeat(length)].concat();
    assert!(parse(&text).path().ends_with('r'));
    let longer = [&text, "r"].concat();
    assert_eq!(
        Reference::parse(&longer),
        Err(crate::image::ReferenceError::TooLong)
    );
}
