//! `selvedge check` and `selvedge settings`: checks of a configuration's text and of the files, users and folders that
//! it names.

use crate::support::program::{Exit, run_to_exit, selvedge_command};
use crate::support::tree::Tree;
use std::fs;
use std::path::Path;

/// Checks a configuration file in the parent folder of the tree's site.
fn check(tree: &Tree, text: &str, arguments: &[&str]) -> Exit {
    fs::write(tree.outside("selvedge.kdl"), text).expect("the file is writable");
    run_to_exit(selvedge_command().current_dir(folder(tree)).arg("check").args(arguments))
}

fn folder(tree: &Tree) -> &Path {
    tree.site().parent().expect("the site has a parent directory")
}

#[test]
fn a_valid_configuration_prints_one_line() {
    let tree = Tree::new();
    let root = tree.site().file_name().unwrap().to_str().unwrap();
    let text =
        format!("site \"a.example\" \"b.example\" {{\n root \"{root}\"\n route \"/old\" {{ redirect \"/new\" }}\n}}");
    let exit = check(&tree, &text, &[]);
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""));
    let file = folder(&tree).join("selvedge.kdl");
    assert_eq!(exit.out, format!("{}: 1 site, 1 route, no problems\n", file.display()), "with its absolute path");
}

#[test]
fn a_missing_error_page_is_a_warning() {
    let tree = Tree::new();
    tree.write("gone.html", "gone");
    tree.create_dir("errors");
    let root = tree.site().file_name().unwrap().to_str().unwrap();
    let text = format!(
        "site \"a\" {{\n root \"{root}\"\n error-page 410 \"/gone.html\"\n error-page 404 \"/none.html\"\n\
         route \"/x\" {{ error-page 403 \"/errors\"; deny; }}\n error-page 500 \"/errors/\"\n}}"
    );
    let exit = check(&tree, &text, &[]);
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(exit.out.ends_with("selvedge.kdl: 1 site, 1 route, no problems, 2 warnings\n"), "{}", exit.out);
    let root = folder(&tree).join(root).display().to_string();
    let place = folder(&tree).display().to_string();
    let instead = "  until it can be read, clients get a short text instead";
    let none = format!(
        "{place}/selvedge.kdl:4:17: warning: cannot read /none.html below {root}: it does not exist\n  \
         4 |  error-page 404 \"/none.html\"\n    |                 ^^^^^^^^^^^^\n{instead}\n"
    );
    assert!(exit.err.starts_with(&none), "{}", exit.err);
    let folder = format!("selvedge.kdl:5:29: warning: cannot read /errors below {root}: not a regular file\n");
    assert!(exit.err.contains(&folder), "{}", exit.err);
    assert!(check(&tree, &text, &["--effective"]).err.starts_with(&none));
}

#[test]
fn a_missing_target_of_a_fallback_or_rewrite_is_a_warning() {
    let tree = Tree::new();
    tree.write("app.html", "app");
    tree.create_dir("docs");
    let root = tree.site().file_name().unwrap().to_str().unwrap();
    let text = format!(
        "site \"a\" {{\n root \"{root}\"\n route \"/a/*\" {{ files fallback=\"/app.html\"; }}\n \
         route \"/b/*\" {{ files fallback=\"/none.html\"; }}\n route \"/c\" {{ rewrite \"/app.html\"; }}\n \
         route \"/d\" {{ rewrite \"/docs\"; }}\n route \"/e\" {{ rewrite \"/absent.html\"; }}\n}}"
    );
    let exit = check(&tree, &text, &[]);
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(exit.out.ends_with("no problems, 2 warnings\n"), "{exit:?}");
    for expected in [
        ":4:32: warning: cannot read /none.html below ",
        "  until it can be read, page navigations to missing files get 404\n",
        ":7:23: warning: cannot read /absent.html below ",
        "  until it can be read, the requests that are rewritten get 404\n",
    ] {
        assert!(exit.err.contains(expected), "missing: {expected}\n{}", exit.err);
    }
}

#[test]
fn all_problems_of_the_text_are_reported() {
    let tree = Tree::new();
    let exit = check(&tree, "workers \"many\"\nlisten 8080\nsite \"a\" { rot \".\" }", &[]);
    assert_eq!((exit.code, exit.out.as_str()), (Some(1), ""));
    for expected in
        ["selvedge.kdl:1:9: ", "selvedge.kdl:2:8: ", "selvedge.kdl:3:12: ", "did you mean `root`?", "\n3 problems\n"]
    {
        assert!(exit.err.contains(expected), "missing: {expected}\n{}", exit.err);
    }
}

#[test]
fn all_problems_of_files_users_and_folders_are_reported_with_positions() {
    let tree = Tree::new();
    let folder = folder(&tree);
    fs::write(folder.join("users"), "# people\nanna:$2y$05$abcdefghijklmnopqrstuu\nberta:secret\n").unwrap();
    fs::write(folder.join("file"), "").unwrap();
    let text = "\
listen \"unix:none/site.sock\"
user \"missing-user\"
log { access \"none/access.log\"; }
site \"a\" { root \"none\"; }
site \"b\" { root \"file\"; }
site \"c\" { route \"/*\" { deny; basic-auth file=\"users\"; }; }
site \"d\" { route \"/*\" { deny; basic-auth file=\"none\"; }; }
";
    let exit = check(&tree, text, &[]);
    assert_eq!((exit.code, exit.out.as_str()), (Some(1), ""));
    for expected in [
        "selvedge.kdl:1:8: cannot access the folder FOLDER/none: it does not exist\n",
        "create it: mkdir -p FOLDER/none",
        "selvedge.kdl:2:6: no user named missing-user\n",
        "selvedge.kdl:3:14: cannot access the folder FOLDER/none: it does not exist\n",
        "selvedge.kdl:4:17: cannot read FOLDER/none: it does not exist\n",
        "selvedge.kdl:5:17: FOLDER/file is not a directory\n",
        "selvedge.kdl:6:47: line 3 of FOLDER/users is not a user with an argon2 or bcrypt hash\n",
        "selvedge.kdl:7:47: cannot read FOLDER/none: it does not exist\n",
        "\n7 problems\n",
    ] {
        let expected = expected.replace("FOLDER", &folder.display().to_string());
        assert!(exit.err.contains(&expected), "missing: {expected}\n{}", exit.err);
    }
    assert!(!exit.err.contains("secret"), "the password is in the output");
}

#[test]
fn check_validates_log_formats() {
    let tree = Tree::new();
    let text = "\
log { access \"off\" format=\"%h %Z\"; }
site \"a\" { root \".\"; log { access \"a.log\" format=\"combinde\"; }; }
site \"b\" { root \".\"; log { access \"b.log\" format=\"%A\"; }; }
site \"c\" { root \".\"; log { access \"c.log\" format=\"%{usec}t %{end:msec_frac}t %L\"; }; }
site \"d\" { root \".\"; log { access \"d.log\" format=\"%h\\n%t\"; }; }
site \"e\" { root \".\"; log { access \"e.log\" format=\"%{sid}C %P %400,501{User-agent}i %!200,304{Referer}i %{c}h\"; }; }
";
    let exit = check(&tree, text, &[]);
    assert_eq!((exit.code, exit.out.as_str()), (Some(1), ""));
    for expected in [
        "selvedge.kdl:1:27: the directive %Z is not known (at byte 4)\n",
        "  write %% for a percent sign\n",
        "selvedge.kdl:2:50: \"combinde\" is no format of an access log (at byte 1)\n",
        "  write common, combined, json, or directives such as %h\n",
        "selvedge.kdl:3:50: the directive %A is not known (at byte 1)\n",
        "selvedge.kdl:5:50: the format has the control character '\\n' (at byte 3)\n",
        "\n4 problems\n",
    ] {
        assert!(exit.err.contains(expected), "missing: {expected}\n{}", exit.err);
    }
}

#[test]
fn an_unusable_password_hash_is_reported_with_its_position() {
    let tree = Tree::new();
    let users = "ann:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n# nobody\n";
    fs::write(folder(&tree).join("users"), users).unwrap();
    let costly = "$2y$31$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
    let text = format!(
        "site \"a\" {{\n root \".\"\n basic-auth file=\"users\" {{\n  user \"bob\" \"{costly}\"\n }}\n \
         route \"/*\" {{\n  files\n  basic-auth {{\n   user \"cid\" \"$2y$\"\n  }}\n }}\n}}\n"
    );
    let exit = check(&tree, &text, &[]);
    assert_eq!((exit.code, exit.out.as_str()), (Some(1), ""));
    for expected in [
        "selvedge.kdl:4:14: checking this hash costs too much",
        "selvedge.kdl:9:15: this hash is malformed\n",
        "\n2 problems\n",
    ] {
        assert!(exit.err.contains(expected), "missing: {expected}\n{}", exit.err);
    }
}

#[test]
fn included_files_and_environment_variables_are_read() {
    let tree = Tree::new();
    let folder = folder(&tree);
    fs::create_dir(folder.join("sites")).unwrap();
    fs::write(folder.join("sites/a.kdl"), "site \"${SELVEDGE_NAME}\" { route \"/*\" { deny; }; }").unwrap();
    fs::write(folder.join("sites/.hidden.kdl"), "nonsense").unwrap();
    fs::write(folder.join("selvedge.kdl"), "include \"sites/*.kdl\"").unwrap();
    let exit = run_to_exit(
        selvedge_command().current_dir(folder).env("SELVEDGE_NAME", "a.example").args(["check", "--effective"]),
    );
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""));
    assert!(exit.out.contains("site \"a.example\" {"), "{}", exit.out);

    let exit = run_to_exit(selvedge_command().current_dir(folder).args(["check", "--config", "selvedge.kdl"]));
    assert_eq!(exit.code, Some(1));
    assert!(exit.err.contains("/sites/a.kdl:1:6: environment variable SELVEDGE_NAME is not set\n"), "{}", exit.err);
}

#[test]
fn the_effective_configuration_has_all_settings_and_the_memory_bound() {
    let tree = Tree::new();
    let text = "workers 2\nlimits { connections-max 1000; }\nsite \"a\" { route \"/*\" { deny; }; }";
    let exit = check(&tree, text, &["--effective"]);
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""));
    assert!(exit.out.contains("    header-timeout \"10s\"\n"), "{}", exit.out);
    assert!(exit.out.contains("= 1000 connections of 264 KiB\n"), "{}", exit.out);
    assert!(exit.out.contains("128 MiB = 2 file caches of 65536 KiB\n"), "{}", exit.out);

    assert!(!exit.out.contains("password checks"), "{}", exit.out);
    let users = "ann:$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc\n\
        bob:$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
    fs::write(folder(&tree).join("users"), users).unwrap();
    let guarded = check(&tree, "site \"a\" { route \"/*\" { deny; basic-auth file=\"users\"; }; }", &["--effective"]);
    assert!(guarded.out.contains("128 MiB = 2 password checks of 65536 KiB\n"), "{}", guarded.out);

    // The output, with its comments, is a configuration with an equal effect.
    let again = check(&tree, &exit.out, &["--effective"]);
    assert_eq!(again.out, exit.out);
}

#[test]
fn an_unreadable_file_is_reported() {
    let tree = Tree::new();
    let exit = run_to_exit(selvedge_command().current_dir(folder(&tree)).args(["check", "--config", "none.kdl"]));
    assert_eq!(exit.code, Some(1));
    let file = folder(&tree).join("none.kdl").display().to_string();
    assert!(exit.err.starts_with(&format!("{file}:1:1: cannot read {file}: it does not exist\n")), "{}", exit.err);

    fs::write(folder(&tree).join("latin.kdl"), b"// one\nsite \"b\xfccher\"").unwrap();
    let exit = run_to_exit(selvedge_command().current_dir(folder(&tree)).args(["check", "--config", "latin.kdl"]));
    assert!(exit.err.contains("line 2 is not UTF-8"), "{}", exit.err);
}

#[test]
fn settings_are_printed_in_three_forms() {
    let text = run_to_exit(selvedge_command().arg("settings"));
    assert!(
        text.code == Some(0)
            && text.out.contains("\n    listen ADDRESS [mode=...] [tls=...] [http2=...] [proxy-protocol=...]\n"),
        "{text:?}"
    );
    let json = run_to_exit(selvedge_command().args(["settings", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert!(list.as_array().unwrap().iter().any(|setting| setting["name"] == "listen"));
    let page = run_to_exit(selvedge_command().args(["settings", "--markdown"]));
    assert!(page.out.starts_with("# Configuration\n"), "{page:?}");
}

#[test]
fn problems_of_the_text_and_of_the_machine_are_reported_together() {
    let tree = Tree::new();
    let exit = check(&tree, "user \"missing-user\"\nsite \"a\" { root \"none\"; rot \"x\"; }", &[]);
    for expected in ["no user named missing-user", "none: it does not exist", "`rot` is not known", "\n3 problems\n"] {
        assert!(exit.err.contains(expected), "missing: {expected}\n{}", exit.err);
    }
}

#[test]
fn problems_are_printed_as_json() {
    let tree = Tree::new();
    let exit = check(&tree, "site \"a\" { root \".\"; rot \"x\"; }", &["--json"]);
    assert_eq!((exit.code, exit.err.as_str()), (Some(1), ""));
    for expected in ["\"line\": 1", "\"column\": 22", "\"end_column\": 25", "\"error\"", "did you mean `root`?"] {
        assert!(exit.out.contains(expected), "missing: {expected}\n{}", exit.out);
    }
    let exit = check(&tree, "", &["--json"]);
    assert!(exit.code == Some(0) && exit.out.contains("\"warning\"") && exit.out.contains("no site"), "{exit:?}");
}

#[test]
fn the_configuration_is_found() {
    let tree = Tree::new();
    let folder = folder(&tree);
    let in_folder = || {
        let mut command = selvedge_command();
        command.current_dir(folder).env_remove("SELVEDGE_CONFIG");
        command
    };
    let exit = run_to_exit(in_folder().arg("check"));
    assert!(exit.err.contains("neither") && exit.err.contains("/etc/selvedge/selvedge.kdl"), "{exit:?}");
    for name in ["selvedge.kdl", "named.kdl", "of-environment.kdl"] {
        fs::write(folder.join(name), "site \"a\" { route \"/\" { deny; }; }").unwrap();
    }
    let found = |exit: Exit, name: &str| {
        assert_eq!(exit.code, Some(0), "{exit:?}");
        assert!(exit.out.starts_with(&format!("{}: 1 site", folder.join(name).display())), "{exit:?}");
    };
    found(run_to_exit(in_folder().arg("check")), "selvedge.kdl");
    found(run_to_exit(in_folder().args(["check", "named.kdl"])), "named.kdl");
    found(run_to_exit(in_folder().args(["check", "--config", "named.kdl"])), "named.kdl");
    found(run_to_exit(in_folder().env("SELVEDGE_CONFIG", "of-environment.kdl").arg("check")), "of-environment.kdl");
    found(run_to_exit(in_folder().env("SELVEDGE_CONFIG", "x").args(["check", "named.kdl"])), "named.kdl");
}

#[test]
fn what_a_root_should_not_have_is_a_warning() {
    let tree = Tree::new();
    tree.write("shop/Index.PHP", "<?php");
    std::os::unix::fs::symlink("/etc", tree.site().join("shop/out")).unwrap();
    std::os::unix::fs::symlink(".", tree.site().join("shop/inside")).unwrap();
    let root = tree.site().file_name().unwrap().to_str().unwrap();
    let exit = check(&tree, &format!("site \"a\" {{ root \"{root}\"; }}"), &[]);
    assert!(exit.err.contains("shop/out leads out of the root"), "{exit:?}");
    assert!(exit.err.contains("shop/Index.PHP would be sent as its source"), "{exit:?}");
    assert!(exit.out.ends_with("2 warnings\n"), "{exit:?}");
    let denied = "route \"*.php\" ignore-case=#true { deny; }";
    let exit = check(&tree, &format!("site \"a\" {{ root \"{root}\"; {denied}; }}"), &[]);
    assert!(exit.out.ends_with("1 warning\n"), "{exit:?}");
}

#[test]
fn files_are_formatted() {
    let tree = Tree::new();
    let folder = folder(&tree);
    fs::write(folder.join("a.kdl"), "site   \"a\"{\n// why\nroot \".\";\n}").unwrap();
    let fmt = |arguments: &[&str]| run_to_exit(selvedge_command().current_dir(folder).arg("fmt").args(arguments));
    let exit = fmt(&["--check", "a.kdl"]);
    assert!(exit.code == Some(1) && exit.err.contains("a.kdl: not formatted"), "{exit:?}");
    assert_eq!(fmt(&["a.kdl"]).code, Some(0));
    let formatted = fs::read_to_string(folder.join("a.kdl")).unwrap();
    assert_eq!(formatted, "site \"a\" {\n    // why\n    root \".\"\n}\n");
    assert_eq!(fmt(&["--check", "a.kdl"]).code, Some(0));
    fs::write(folder.join("b.kdl"), "site {").unwrap();
    let exit = fmt(&["b.kdl"]);
    assert!(exit.code == Some(1) && exit.err.contains("it has problems"), "{exit:?}");
    assert_eq!(fs::read_to_string(folder.join("b.kdl")).unwrap(), "site {", "an invalid file stays as it is");
}
