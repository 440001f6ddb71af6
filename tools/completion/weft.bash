# SPDX-License-Identifier: MIT
# Completion of weft's commands, options and values in bash. The tool itself tells them, from its tables.

_weft() {
    local tool=${COMP_WORDS[0]} command=${COMP_WORDS[1]} i=$COMP_CWORD
    local word=${COMP_WORDS[i]} option name kind choices doc names="" chosen=""
    COMPREPLY=()
    if [ "$i" -eq 1 ]; then
        names="--help --version"
        while read -r name doc; do names+=" $name"; done < <("$tool" --complete 2>/dev/null)
        COMPREPLY=($(compgen -W "$names" -- "$word"))
        return
    fi
    # Behind -- is another program.
    [[ " ${COMP_WORDS[*]:2:i-2} " != *" -- "* ]] || return
    # Bash takes --op=x for three words.
    [ "$word" != = ] || { word="" && i=$((i + 1)); }
    option=${COMP_WORDS[i - 1]}
    [ "$option" != = ] || option=${COMP_WORDS[i - 2]}
    while read -r name kind choices doc; do
        names+=" $name"
        if [ "$name" = "$option" ] && [ "$kind" != flag ]; then
            [ "$kind" = value ] || chosen=${word%"${word##*,}"}
            # Without choices, bash offers files.
            [ "$choices" = - ] ||
                COMPREPLY=($(compgen -P "$chosen" -W "${choices//,/ }" -- "${word#"$chosen"}"))
            return
        fi
    done < <("$tool" "$command" --complete 2>/dev/null)
    [[ $word != -* ]] || COMPREPLY=($(compgen -W "$names" -- "$word"))
}
complete -o default -F _weft weft
