# SPDX-License-Identifier: MIT
# The page of one command, out of docs/weft.1, which has all, and of the summaries in the tool.
# usage: awk -v command=NAME -f manual_page.awk tools/weft/main.c docs/weft.1
function print_synopsis() {
    if (block ~ "\n\\.Cm ([a-z| ]* )?" command "( [|a-z ]*)?\n") {
        sub(/\n\.Cm [^\n]*/, "", block)
        printf "%s", block
    }
    block = ""
}
FILENAME ~ /main\.c$/ {
    if (index($0, "{\"weft " command "\", ") && split($0, parts, "\"") > 3)
        summary = parts[4]
    next
}
/^\.(Dd|Os|\\" SPDX)/ { print; next }
/^\.Dt/ { print ".Dt WEFT-" toupper(command) " 1"; next }
/^\.S[hs] / {
    print_synopsis()
    in_synopsis = is_own = 0
    if ($0 == ".Sh SYNOPSIS") {
        print ".Sh NAME\n.Nm weft-" command "\n.Nd " summary "\n" $0
        in_synopsis = 1
    } else if ($0 == ".Ss weft " command) {
        print ".Sh DESCRIPTION"
        is_own = 1
    } else if ($0 == ".Sh OUTPUT OF WEFT " toupper(command)) {
        print ".Sh OUTPUT"
        is_own = 1
    }
    next
}
in_synopsis && $0 == ".Nm" { print_synopsis(); block = ".Nm weft " command }
in_synopsis { block = block ($0 == ".Nm" ? "" : $0) "\n" }
is_own
END {
    print ".Sh SEE ALSO\n.Xr weft 1\nhas the environment, files, the exit status and examples."
}
