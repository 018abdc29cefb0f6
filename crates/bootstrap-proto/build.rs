//! Generates the messages, clients and servers of `proto/bootstrap.proto`, with a compiler written in Rust.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/bootstrap.proto");
    let files = protox::compile(["proto/bootstrap.proto"], ["proto"])?;
    tonic_prost_build::configure()
        // Nearly every message contains a secret, which must not get into a log.
        .skip_debug(["."])
        .compile_fds(files)?;
    Ok(())
}
