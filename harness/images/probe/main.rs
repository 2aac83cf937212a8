//! The probe's program: stays for ever, or answers one question about the container that it runs in.
//!
//! Invariant: standard library only, so that one call of `rustc` builds it; no shell is needed to ask it.
//! `probe` alone waits until it is killed, which makes it an image for any Pod.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is its purpose"
)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [] | ["pause"] => pause(),
        ["exit", code] => return code.parse::<u8>().map_or(ExitCode::FAILURE, ExitCode::from),
        ["env"] => {
            env();
            Ok(())
        }
        ["env", name] => variable(name),
        ["cat", files @ ..] => files.iter().try_for_each(|file| cat(file)),
        ["ls", folder] => list(folder),
        ["resolve", name] => resolve(name),
        ["get", address, path] => get(address, path),
        ["http"] => serve("0.0.0.0:8080"),
        ["http", address] => serve(address),
        _ => Err(format!("{USAGE}, not {words:?}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), String>;

fn pause() -> Done {
    loop {
        std::thread::park();
    }
}

fn env() {
    for (name, value) in std::env::vars() {
        println!("{name}={value}");
    }
}

fn variable(name: &str) -> Done {
    let value = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
    println!("{value}");
    Ok(())
}

fn cat(file: &str) -> Done {
    let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    std::io::stdout()
        .write_all(&bytes)
        .map_err(|error| error.to_string())
}

/// One line an entry: its length in bytes (links followed), its name.
fn list(folder: &str) -> Done {
    let failed = |error: std::io::Error| format!("{folder}: {error}");
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let length = std::fs::metadata(&path).map_or(0, |data| data.len());
        lines.push((path.file_name().unwrap_or_default().to_owned(), length));
    }
    lines.sort();
    for (name, length) in lines {
        println!("{length}\t{}", name.display());
    }
    Ok(())
}

fn resolve(name: &str) -> Done {
    let addresses = (name, 0)
        .to_socket_addrs()
        .map_err(|error| format!("{name}: {error}"))?;
    addresses.for_each(|address| println!("{}", address.ip()));
    Ok(())
}

fn get(address: &str, path: &str) -> Done {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    print!("{answer}");
    Ok(())
}

/// Answers 200 to whatever comes, one connection after the other.
fn serve(address: &str) -> Done {
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    for stream in listener.incoming().flatten() {
        // A client that goes away early is its own business.
        let _ = answer(stream);
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n")
}

const USAGE: &str = "probe [pause | exit N | env [NAME] | cat FILE… | ls DIR | resolve NAME | get HOST:PORT PATH | http [ADDRESS]]";
