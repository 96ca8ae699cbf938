// Classic script, loaded first: shows a message if part of the page can't be loaded or run.
(function () {
  'use strict';

  /** @param {string} message */
  function tell(message) {
    const panel = document.getElementById('boot');
    if (!panel) return;
    panel.textContent =
      'Part of the page could not be loaded: ' +
      message +
      '. Reload the page. If that doesn’t help, check the server’s terminal.';
    panel.classList.add('boot-failed');
    panel.hidden = false;
    panel.setAttribute('role', 'alert');
  }

  window.addEventListener(
    'error',
    function (event) {
      const target = event.target;
      if (target instanceof HTMLScriptElement) tell(new URL(target.src).pathname.split('/').pop() || target.src);
      else if (target instanceof HTMLLinkElement) tell(new URL(target.href).pathname.split('/').pop() || target.href);
      else if (document.documentElement.dataset.ready !== 'yes' && event.message) tell(event.message);
    },
    true,
  );

  window.addEventListener('unhandledrejection', function (event) {
    if (document.documentElement.dataset.ready !== 'yes')
      tell(String((event.reason && event.reason.message) || event.reason));
  });
})();
