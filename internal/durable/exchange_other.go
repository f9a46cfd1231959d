//go:build !linux

package durable

import "errors"

// Exchange returns [errors.ErrUnsupported]: this system cannot exchange directories atomically.
func Exchange(a, b string) error { return errors.ErrUnsupported }
