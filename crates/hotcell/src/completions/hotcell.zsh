#compdef hotcell
# Completions of hotcell for Zsh.
_hotcell() {
    local -a lines found
    local line
    lines=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ ${lines[1]} == :files ]]; then
        _files
        return
    fi
    for line in "${lines[@]}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe hotcell found
}
if [[ $funcstack[1] == _hotcell ]]; then
    _hotcell "$@"
else
    compdef _hotcell hotcell
fi
