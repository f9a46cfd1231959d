package command

import (
	"errors"
	"fmt"
	"strings"
)

// Words splits a command line into arguments, with placeholders {{…}} as they
// are: white space separates, '…' is verbatim, in "…" and elsewhere a backslash
// takes a character verbatim that would mean something: white space, a quote, a
// brace, a backslash. Before any other it stands for itself, for many programs
// have one of their own, as in --set a=b\,c.
func Words(line string) (words []string, err error) {
	var word strings.Builder
	begun := false // there is a word, maybe an empty one
	var quote byte // that is open; 0 for none
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		if quote == 0 && strings.IndexByte(space, c) >= 0 {
			end()
			continue
		}
		begun = true
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'':
			word.WriteByte(c)
		case strings.HasPrefix(line[i:], "{{"):
			text, _, found := strings.Cut(line[i:], "}}")
			if !found {
				return nil, errors.New("a {{ has no end")
			}
			word.WriteString(text + "}}")
			i += len(text) + 1
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == '\\' && i+1 < len(line):
			if strings.IndexByte(space+`'"\{`, line[i+1]) >= 0 {
				i++
			}
			word.WriteByte(line[i])
		case c == '\\' && quote == 0:
			return nil, errors.New(`a \ is at its end`)
		default:
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c has no end", quote)
	}
	end()
	return words, nil
}

const space = " \t\r\n"
