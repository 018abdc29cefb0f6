# One image for each program: docker build --build-arg PROGRAM=core-provider -t core-provider .
# The file /program is the entry point: a container sets arguments, and no command. In the images of core-provider,
# composition-dynamic-controller and chart-inspector it is the same file, and the variable PROGRAM says which of them to
# run. Releases are not made with this, but by `make release`.
#
# There are two final stages. `image` (the default) compiles all programs, once for all images; it needs the network and a
# builder that can pull. `make dockerfile` tries it without either, with a fake cargo that compiles nothing. `ready` takes
# static binaries that were compiled before (--target ready, with their folder inside the build context as BINARIES); every
# test and the demo use it.

# Rust 1.95 or newer with a C compiler, glibc 2.36 or newer, git and CA certificates.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
# Use the toolchain of the image: the one that rust-toolchain.toml names would be downloaded.
# A static glibc program needs no file in its image except CA certificates.
RUN set -eu; \
    if [ -n "${RUST_VERSION:-}" ]; then export RUSTUP_TOOLCHAIN="$RUST_VERSION"; fi; \
    triple="$(rustc -vV | sed -n 's/^host: //p')"; \
    set -- programs multicluster-operator join-service kco web-server; \
    RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs" \
        cargo build --locked --workspace --release --features jemalloc \
        --target "$triple" $(printf -- '--bin %s ' "$@"); \
    mkdir -p /out; \
    for program in "$@"; do cp "target/$triple/release/$program" "/out/$program"; done; \
    for program in core-provider composition-dynamic-controller chart-inspector; do \
        ln /out/programs "/out/$program"; \
    done; \
    cp /etc/ssl/certs/ca-certificates.crt /out/ca-certificates.crt

FROM scratch AS ready
ARG PROGRAM
ARG BINARIES=.
COPY ${BINARIES}/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY ${BINARIES}/${PROGRAM} /program
ENV PROGRAM=${PROGRAM}
USER 65532:65532
ENTRYPOINT ["/program"]

FROM scratch AS image
ARG PROGRAM
COPY --from=build /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/${PROGRAM} /program
ENV PROGRAM=${PROGRAM}
USER 65532:65532
ENTRYPOINT ["/program"]
