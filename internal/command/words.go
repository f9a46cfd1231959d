package command

import (
	"errors"
	"fmt"
	"strings"
)

// Words splits a command line into arguments at white space outside quotes. It keeps
// placeholders {{…}} and the text in '…' verbatim. In "…" and outside quotes, a
// backslash makes white space, a quote, an opening brace or a backslash literal. Before
// any other character the backslash stands for itself, since many programs interpret
// backslashes themselves, as in --set a=b\,c.
func Words(line string) (words []string, err error) {
	var word strings.Builder
	inWord := false // there is a word, maybe an empty one
	var quote byte  // the open quote; 0 for none
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		if quote == 0 && strings.IndexByte(space, c) >= 0 {
			end()
			continue
		}
		inWord = true
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
