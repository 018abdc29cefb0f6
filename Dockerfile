# One image for each program: docker build --build-arg PROGRAM=core-provider -t core-provider .
# The program is what the image runs: a container gives it arguments, and no command.
#
# Two ways in. `image` (the default) compiles the program; it needs the network and a builder that can pull, so
# the tests of this project, which have neither, do not try it. `ready` takes static binaries that were compiled
# before (--target ready, with their folder inside the build context as BINARIES); every test and the demo use it.

FROM docker.io/library/rust:1.95-bookworm AS build
ARG PROGRAM
WORKDIR /src
COPY . .
# The toolchain of the image, not the name that rust-toolchain.toml has for it: that would be downloaded.
# A static glibc program needs no file of the image it runs in but CA certificates.
RUN set -eu; \
    export RUSTUP_TOOLCHAIN="$RUST_VERSION"; \
    triple="$(rustc -vV | sed -n 's/^host: //p')"; \
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --workspace --release --features jemalloc --target "$triple" --bin "$PROGRAM"; \
    mkdir -p /out; \
    cp "target/$triple/release/$PROGRAM" /out/program; \
    cp /etc/ssl/certs/ca-certificates.crt /out/ca-certificates.crt

FROM scratch AS ready
ARG PROGRAM
ARG BINARIES=.
COPY ${BINARIES}/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY ${BINARIES}/${PROGRAM} /program
USER 65532:65532
ENTRYPOINT ["/program"]

FROM scratch AS image
COPY --from=build /out/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/program /program
USER 65532:65532
ENTRYPOINT ["/program"]
