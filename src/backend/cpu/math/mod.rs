//! shim until the vector functions land
macro_rules! shim { ($m:ident, $t:ty) => { pub mod $m {
  pub fn exp<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.exp() } }
  pub fn exp2<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.exp2() } }
  pub fn expm1<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.exp_m1() } }
  pub fn log<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.ln() } }
  pub fn log2<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.log2() } }
  pub fn log10<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.log10() } }
  pub fn log1p<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.ln_1p() } }
  pub fn sin<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.sin() } }
  pub fn cos<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.cos() } }
  pub fn tan<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.tan() } }
  pub fn asin<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.asin() } }
  pub fn acos<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.acos() } }
  pub fn atan<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.atan() } }
  pub fn sinh<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.sinh() } }
  pub fn cosh<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.cosh() } }
  pub fn tanh<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.tanh() } }
  pub fn asinh<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.asinh() } }
  pub fn acosh<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.acosh() } }
  pub fn atanh<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = x.atanh() } }
  pub fn erf<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = libm::erf(*x as f64) as $t } }
  pub fn erfc<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = libm::erfc(*x as f64) as $t } }
  pub fn erfcx<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = ((*x as f64)*(*x as f64)).exp() as $t * libm::erfc(*x as f64) as $t } }
  pub fn erfinv<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = *x } }
  pub fn ndtri<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = *x } }
  pub fn sigmoid<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = 1.0/(1.0+(-x).exp()) } }
  pub fn lgamma<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = libm::lgamma(*x as f64) as $t } }
  pub fn digamma<const F: bool>(x: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = *x } }
  pub fn pow<const F: bool>(x: &[$t], y: &[$t], o: &mut [$t]) { for ((o,x),y) in o.iter_mut().zip(x).zip(y) { *o = x.powf(*y) } }
  pub fn atan2<const F: bool>(x: &[$t], y: &[$t], o: &mut [$t]) { for ((o,x),y) in o.iter_mut().zip(x).zip(y) { *o = x.atan2(*y) } }
  pub fn hypot<const F: bool>(x: &[$t], y: &[$t], o: &mut [$t]) { for ((o,x),y) in o.iter_mut().zip(x).zip(y) { *o = x.hypot(*y) } }
  pub fn fmod<const F: bool>(x: &[$t], y: &[$t], o: &mut [$t]) { for ((o,x),y) in o.iter_mut().zip(x).zip(y) { *o = x % y } }
  pub fn polygamma<const F: bool>(x: &[$t], _y: &[$t], o: &mut [$t]) { for (o,x) in o.iter_mut().zip(x) { *o = *x } }
  pub use super::rounding::$m::*;
}}}
shim!(single, f32); shim!(double, f64);
mod rounding;
pub fn f16_to_f32(x: &[u16], o: &mut [f32]) { for (o,x) in o.iter_mut().zip(x) { *o = half::f16::from_bits(*x).to_f32() } }
pub fn bf16_to_f32(x: &[u16], o: &mut [f32]) { for (o,x) in o.iter_mut().zip(x) { *o = half::bf16::from_bits(*x).to_f32() } }
pub fn f32_to_f16(x: &[f32], o: &mut [u16]) { for (o,x) in o.iter_mut().zip(x) { *o = half::f16::from_f32(*x).to_bits() } }
pub fn f32_to_bf16(x: &[f32], o: &mut [u16]) { for (o,x) in o.iter_mut().zip(x) { *o = half::bf16::from_f32(*x).to_bits() } }
