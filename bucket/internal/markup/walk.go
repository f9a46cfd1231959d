package markup

import (
	"errors"
	"fmt"
)

// MaxText is how many bytes the text of an element has at most that is kept: a
// key of 1024 characters, each of them escaped, has less.
const MaxText = 8 << 10

var (
	errOdd  = errors.New("the answer is no listing as stores write it: an element is there twice, or is not text")
	errLong = fmt.Errorf("the answer has an element of more than %d bytes", MaxText)
)

// A Visitor is told of elements as they come. open are the names of those that
// are open, outermost first.
type Visitor interface {
	// Start is told of an element, the last of open. It returns what the text of
	// the element goes to, nil for nowhere.
	Start(open []string, element Token) (*string, error)

	// End is told that an element below open has ended.
	End(open []string) error
}

// Walk tells v of the elements of a text until the outermost one ends. It fails
// with the first error of v, and when an element whose text is kept holds
// another element, has more than [MaxText] bytes, or was there before: what its
// text goes to is not empty.
func Walk(text string, v Visitor) error {
	s := Scanner{Text: text}
	var to *string
	for {
		t, err := s.Next()
		switch {
		case err != nil:
		case t.Kind == Start && to != nil:
			err = errOdd
		case t.Kind == Start:
			if to, err = v.Start(s.open, t); err == nil && to != nil && *to != "" {
				err = errOdd
			}
		case t.Kind == End:
			to = nil
			if err = v.End(s.open); err == nil && len(s.open) == 0 {
				return nil
			}
		case to != nil:
			err = t.addTo(to)
		}
		if err != nil {
			return err
		}
	}
}

// addTo adds what a token means to the text of an element, which is nearly
// always of one piece.
func (t Token) addTo(text *string) error {
	meant, err := t.Meant()
	if err != nil {
		return err
	}
	if *text += meant; len(*text) > MaxText {
		return errLong
	}
	return nil
}
