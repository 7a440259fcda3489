package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryExportedNameIsDocumented reads the packages as pkg.go.dev does. The
// comment of a function, a method or a type speaks of it by its name, and each
// package has an example.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{
		".", "memstore", "redisstore", "pgstore", "client", "storetest", "idempotencytest", "otelobserver", "slogobserver",
	} {
		p := parsePackage(t, folder)
		require.True(t, strings.HasPrefix(p.Doc, "Package "+p.Name+" "), folder)
		examples := len(p.Examples)
		for _, values := range [][]*doc.Value{p.Consts, p.Vars} {
			for _, v := range values {
				requireValues(t, folder, v)
			}
		}
		functions := p.Funcs
		for _, typ := range p.Types {
			requireNamed(t, folder, typ.Name, typ.Doc)
			functions = append(append(functions, typ.Funcs...), typ.Methods...)
			examples += len(typ.Examples)
			for _, values := range append(typ.Consts, typ.Vars...) {
				requireValues(t, folder, values)
			}
		}
		for _, f := range functions {
			requireNamed(t, folder, f.Name, f.Doc)
			examples += len(f.Examples)
		}
		require.Positive(t, examples, "%s has no example", folder)
	}
}

func parsePackage(t *testing.T, folder string) *doc.Package {
	names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	files := token.NewFileSet()
	var all []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(filepath.Base(name), "example") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
		require.NoError(t, err)
		all = append(all, file)
	}
	p, err := doc.NewFromFiles(files, all, "github.com/retrysafe/idempotency/"+folder)
	require.NoError(t, err)
	return p
}

func requireNamed(t *testing.T, folder, name, comment string) {
	t.Helper()
	require.Regexp(t, `^(An? |The )?`+regexp.QuoteMeta(name)+`\b`, comment, "%s.%s", folder, name)
}

// requireValues asks for a comment on the group, or on each value.
func requireValues(t *testing.T, folder string, v *doc.Value) {
	t.Helper()
	if v.Doc != "" {
		return
	}
	for _, spec := range v.Decl.Specs {
		s := spec.(*ast.ValueSpec)
		require.True(t, s.Doc.Text() != "" || s.Comment.Text() != "", "%s.%s", folder, s.Names[0].Name)
	}
}
