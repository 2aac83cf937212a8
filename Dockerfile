# One target per component: the same static binary, another entry point, nothing else in the image.
#
# With an image registry at hand:    docker build --target webhook --tag webhook .
# Without one (the harness does so): docker build --target webhook --build-arg BINARY=prebuilt FOLDER
#                                    where FOLDER holds the binary of the command below and nothing else.
# Where only the base image cannot be pulled, harness/images/builder/build.sh makes one: --build-arg BUILDER_IMAGE=…
# Needs BuildKit, which builds only the stages that the target depends on.
ARG BINARY=builder
ARG BUILDER_IMAGE=rust:1.95-bookworm

FROM ${BUILDER_IMAGE} AS builder
WORKDIR /source
COPY . .
# glibc is linked in, so that the binary runs without any file beside it. `--target` keeps the flag away from build
# scripts and procedural macros, which cannot be static.
RUN target="$(rustc --print host-tuple)" \
 && RUSTFLAGS="-C target-feature=+crt-static" \
    cargo build --release --locked --package runtime-bootstrapper --target "$target" \
 && install -D "target/$target/release/runtime-bootstrapper" /out/runtime-bootstrapper

FROM scratch AS prebuilt
COPY runtime-bootstrapper /out/runtime-bootstrapper

FROM ${BINARY} AS binary

FROM scratch AS webhook
COPY --from=binary /out/runtime-bootstrapper /runtime-bootstrapper
# A number: the kubelet must see that it is not root. 65532 is what "nonroot" usually means.
USER 65532:65532
ENTRYPOINT ["/runtime-bootstrapper", "webhook"]

FROM scratch AS controller
COPY --from=binary /out/runtime-bootstrapper /runtime-bootstrapper
USER 65532:65532
ENTRYPOINT ["/runtime-bootstrapper", "controller"]

FROM scratch AS watcher
COPY --from=binary /out/runtime-bootstrapper /runtime-bootstrapper
USER 65532:65532
ENTRYPOINT ["/runtime-bootstrapper", "watcher"]
