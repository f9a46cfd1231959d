package command

import (
	"errors"
	"strings"
)

// Words splits a command line into arguments, with placeholders {{…}} as they
// are: white space separates, '…' is verbatim, in "…" and elsewhere a backslash
// takes a character verbatim that would mean something: white space, a quote, a
// brace, a backslash. Before any other it stands for itself, for many programs
// have one of their own, as in --set a=b\,c.
func Words(line string) ([]string, error) {
	var all []string
	var word strings.Builder
	open := false // a word has begun
	for i := 0; i < len(line); {
		n, space, err := piece(line[i:], &word)
		switch {
		case err != nil:
			return nil, err
		case !space:
			open = true
		case open:
			all = append(all, word.String())
			word.Reset()
			open = false
		}
		i += n
	}
	if open {
		all = append(all, word.String())
	}
	return all, nil
}

// piece appends to word what line begins with and returns how long that is.
func piece(line string, word *strings.Builder) (n int, space bool, err error) {
	switch {
	case strings.HasPrefix(line, "{{"):
		return placeholder(line, word)
	case strings.ContainsRune(" \t\r\n", rune(line[0])):
		return 1, true, nil
	case line[0] == '\'':
		text, _, found := strings.Cut(line[1:], "'")
		if !found {
			return 0, false, errors.New("a ' has no end")
		}
		word.WriteString(text)
		return len(text) + 2, false, nil
	case line[0] == '"':
		return quoted(line, word)
	case line[0] == '\\':
		if len(line) == 1 {
			return 0, false, errors.New(`a \ is at its end`)
		}
		return escaped(line, word), false, nil
	}
	word.WriteByte(line[0])
	return 1, false, nil
}

// escaped appends what line begins with: a backslash and a character.
func escaped(line string, word *strings.Builder) (n int) {
	if strings.IndexByte(" \t\r\n'\"\\{", line[1]) < 0 {
		word.WriteByte('\\')
		return 1
	}
	word.WriteByte(line[1])
	return 2
}

// placeholder appends one verbatim, with the quotes that are in it.
func placeholder(line string, word *strings.Builder) (n int, space bool, err error) {
	end := strings.Index(line, "}}")
	if end < 0 {
		return 0, false, errors.New("a {{ has no end")
	}
	word.WriteString(line[:end+2])
	return end + 2, false, nil
}

// quoted appends what stands between double quotes.
func quoted(line string, word *strings.Builder) (n int, space bool, err error) {
	for i := 1; i < len(line); {
		switch {
		case line[i] == '"':
			return i + 1, false, nil
		case strings.HasPrefix(line[i:], "{{"):
			n, _, err := placeholder(line[i:], word)
			if err != nil {
				return 0, false, err
			}
			i += n
		case line[i] == '\\' && i+1 < len(line):
			i += escaped(line[i:], word)
		default:
			word.WriteByte(line[i])
			i++
		}
	}
	return 0, false, errors.New(`a " has no end`)
}
