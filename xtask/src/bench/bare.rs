//! The least that a burst of one byte and its answer can cost: a blocking send and receive on each end, and nothing else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

const WARM_UP: u32 = 1_000;

/// `serve PORT`: answers each byte of one connection with a byte. `measure PORT COUNT`: prints the mean of so many exchanges in
/// nanoseconds.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let text = |problem: std::io::Error| format!("bare loop: {problem}");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", port] => serve(number(port)?).map_err(text),
        ["measure", port, count] => {
            let mean_ns = measure(number(port)?, number(count)?).map_err(text)?;
            println!("{mean_ns}");
            Ok(())
        }
        _ => Err("bare-loop serve PORT | measure PORT COUNT".to_owned()),
    }
}

pub fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn serve(port: u16) -> std::io::Result<()> {
    let (mut stream, _) = TcpListener::bind(("127.0.0.1", port))?.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

fn measure(port: u16, count: u32) -> std::io::Result<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    let mut exchange = || stream.write_all(&[1]).and_then(|()| stream.read_exact(&mut byte));
    for _ in 0..WARM_UP {
        exchange()?;
    }
    let started = Instant::now();
    for _ in 0..count {
        exchange()?;
    }
    Ok(started.elapsed().as_nanos() as f64 / f64::from(count.max(1)))
}
