#compdef plumb plumblined
# Zsh completion of plumb and plumblined: plumb's commands, and the flags of each from what --help says.
local program=$words[1]
local -a names flags
names=(jobs verdicts watch follow explain report ui replay export-trace reproduce golden formats)
if [[ $words[CURRENT] == -* ]]; then
  flags=(${(f)"$($program --help 2>/dev/null | sed -n 's/^ *\(--[a-z_]*\) (.*/\1/p')"})
  [[ $program == *plumblined ]] && flags=(${flags//_/-})
  compadd -- $flags
elif [[ $program == *plumb ]] && (( CURRENT == 2 )); then
  compadd -- $names
else
  _files
fi
