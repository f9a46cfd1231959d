package testenv

import (
	"errors"
	"strings"
	"testing"
)

// ErrorIs reports an error that is not the wanted one. About says of what, as
// in [Equal].
func ErrorIs(t testing.TB, err, want error, about ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%serror %v, want %v", label(about), err, want)
	}
}

// ErrorSays reports an error that is missing, or that lacks a text. About says
// of what, as in [Equal].
func ErrorSays(t testing.TB, err error, want string, about ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%serror %v, want one that says %q", label(about), err, want)
	}
}
