package testenv

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Must ends a test that cannot go on after an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal reports a value that is not the wanted one; an empty list or map is like
// none. About says of what: a value, or a format and its arguments.
func Equal[T any](t testing.TB, got, want T, about ...any) {
	t.Helper()
	verb := "%+v"
	switch v := any(got).(type) {
	case string:
		if verb = "%q"; strings.Contains(v, "\n") {
			verb = "\n%s\n"
		}
	case []string:
		verb = "%q"
	}
	if v := reflect.ValueOf(got); v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		if v.Len()+reflect.ValueOf(want).Len() == 0 {
			return
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s"+verb+", want "+verb, label(about), got, want)
	}
}

func label(about []any) string {
	switch len(about) {
	case 0:
		return ""
	case 1:
		return fmt.Sprint(about[0]) + ": "
	}
	return fmt.Sprintf(about[0].(string), about[1:]...) + ": "
}
