package source

import (
	"reflect"
	"time"
)

var timeType = reflect.TypeFor[time.Time]()

// cloned returns a copy of v that shares nothing with it that either may change. Fields that are not exported are copied as they are.
func cloned(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	unshare(out)
	return out
}

// unshare replaces what v refers to by copies.
func unshare(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			to := reflect.New(v.Type().Elem())
			to.Elem().Set(v.Elem())
			unshare(to.Elem())
			v.Set(to)
		}
	case reflect.Struct:
		if v.Type() == timeType {
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				unshare(f)
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			to := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(to, v)
			for i := range to.Len() {
				unshare(to.Index(i))
			}
			v.Set(to)
		}
	case reflect.Map:
		if !v.IsNil() {
			to := reflect.MakeMapWithSize(v.Type(), v.Len())
			for key, value := range v.Seq2() {
				to.SetMapIndex(key, cloned(value))
			}
			v.Set(to)
		}
	}
}
