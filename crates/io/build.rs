//! With the feature `dpdk`, compiles the shim to DPDK and links the system's library. Otherwise
//! does nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    if let Err(why) = dpdk::build() {
        println!("cargo::error={why}");
    }
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::env;
    use std::process::Command;

    const SHIM: &str = "src/port/dpdk/shim.c";

    /// The oldest version with all names that the shim uses.
    const OLDEST: &str = "21.11";

    pub fn build() -> Result<(), String> {
        for variable in ["PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        println!("cargo::rerun-if-changed={SHIM}");
        pkg_config(&[&format!("--atleast-version={OLDEST}")])?;
        let mut shim = cc::Build::new();
        // The shim is compiled for the processor of the library's headers, which contain code for
        // it.
        pkg_config(&["--cflags"])?.split_whitespace().for_each(|flag| _ = shim.flag(flag));
        // Names that this DPDK calls deprecated may be the only ones of an older version.
        shim.file(SHIM).extra_warnings(true).flag("-Wno-deprecated-declarations");
        shim.try_compile("rivulet-dpdk").map_err(|error| format!("the shim to DPDK: {error}"))?;
        for flag in pkg_config(&["--libs"])?.split_whitespace() {
            match flag.split_at_checked(2) {
                Some(("-l", name)) => println!("cargo::rustc-link-lib={name}"),
                Some(("-L", path)) => println!("cargo::rustc-link-search=native={path}"),
                // rustc makes the linker keep only needed libraries.
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns pkg-config's output for DPDK.
    fn pkg_config(options: &[&str]) -> Result<String, String> {
        const WANTED: &str = "the feature `dpdk` takes DPDK 21.11 or later and pkg-config (on Debian, the packages libdpdk-dev and pkg-config)";
        let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
        let output = Command::new(&program).args(options).arg("libdpdk").output();
        let output = output.map_err(|error| format!("{WANTED}: {program}: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
            return Err(format!("{WANTED}: {program} {}: {}: {said}", options.join(" "), output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
