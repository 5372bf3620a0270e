//! Tells the crate which Cargo profile it is built with, for `build_info()`: benchmarks refuse anything but a release.

fn main() {
    // OUT_DIR is target/<profile>/build/<package>/out, with the target triple before the profile in cross builds.
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let path: Vec<_> = std::path::Path::new(&out).iter().collect();
    let profile =
        path.iter().rposition(|p| *p == "build").and_then(|at| at.checked_sub(1)).and_then(|at| path[at].to_str());
    println!("cargo::rustc-env=RUSTGRAD_PROFILE={}", profile.unwrap_or("unknown"));
    println!("cargo::rerun-if-changed=build.rs");
}
