// The engine's errors as those of rankd.errors.
#pragma once

#include <nanobind/nanobind.h>

#include <cerrno>
#include <system_error>

#include "bindings_arguments.hpp"
#include "engine.hpp"

namespace rankd {

inline void raise(const char* name, nb::tuple arguments) {
  const nb::object type = nb::module_::import_("rankd.errors").attr(name);
  const nb::object error = type(*arguments);
  PyErr_SetObject(type.ptr(), error.ptr());
}

inline void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const MalformedBatch& error) {
    raise("MalformedBatch", nb::make_tuple(error.row < 0 ? nb::none() : nb::object(nb::int_(error.row)), error.what()));
  } catch (const EngineBroken& error) {
    raise("EngineBroken", nb::make_tuple(error.what()));
  } catch (const SaveUnderWay& error) {
    raise("SaveUnderWay", nb::make_tuple(error.what()));
  } catch (const SaveInterrupted& error) {
    raise("SaveInterrupted", nb::make_tuple(error.what()));
  } catch (const SnapshotDamaged& error) {
    raise("SnapshotDamaged", nb::make_tuple(error.what()));
  } catch (const SnapshotNewer& error) {
    raise("SnapshotNewer", nb::make_tuple(error.what()));
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
  }
}

}  // namespace rankd
