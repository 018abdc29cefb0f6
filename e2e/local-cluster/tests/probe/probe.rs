//! The program of the test pods: `serve` answers with the name of its pod, `call` requests it.

use std::{
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

fn main() -> std::io::Result<()> {
    let mut arguments = env::args().skip(1);
    match arguments.next().as_deref() {
        Some("serve") => serve(),
        Some("call") => arguments.try_for_each(|address| {
            println!("{address} {}", call(&address)?);
            Ok(())
        }),
        _ => panic!("serve, or call host:port…"),
    }
}

fn serve() -> std::io::Result<()> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let name = name.trim();
    for connection in TcpListener::bind("0.0.0.0:8080")?.incoming() {
        // A readiness probe connects and closes without sending anything.
        let _ = answer(connection?, name);
    }
    Ok(())
}

fn answer(mut connection: TcpStream, name: &str) -> std::io::Result<()> {
    let _ = connection.read(&mut [0; 4096])?;
    let length = name.len();
    write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{name}")
}

fn call(address: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    write!(connection, "GET / HTTP/1.1\r\nHost: probe\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned())
}
